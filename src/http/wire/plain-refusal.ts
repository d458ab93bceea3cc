import type { Grant } from '../../access/grant.js'
import type { Problem } from './problem.js'
import { redactKeys } from './redaction.js'

export interface PlainRefusal {
  readonly status: number
  readonly text: string
}

export const PLAIN_TEXT = 'text/plain; charset=utf-8'

/**
 * A problem as KV Connect has it: text for people. Clients repeat what is 5xx and nothing else, so a transaction that may be tried
 * again is 503.
 * @param grant undefined for a request that was refused before its token was known.
 */
export function plainRefusal({ status, body }: Problem, grant: Grant | undefined): PlainRefusal {
  const shown = grant?.isScoped ? redactKeys(body, grant) : body
  const { detail = '', retryable } = shown as { readonly detail?: string; readonly retryable?: boolean }
  return { status: retryable === true ? 503 : status, text: detail }
}
