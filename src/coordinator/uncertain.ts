import { ConnectionError } from '../client/http/connection-error.js'
import { ServerError } from '../client/http/server-error.js'
import { KvError } from '../errors/kv-error.js'
import type { ErrorCode } from '../errors/registry.js'

/** Refusals after which a write may be on disk all the same. `timeout` has no class of its own in every version. */
const UNCERTAIN_CODES: ReadonlySet<ErrorCode | 'timeout'> = new Set(['storage_unavailable', 'timeout'])

const refusedRepetitions = new WeakSet<Error>()

/**
 * Notes that what was refused is a repetition: the request before it, whose answer was lost, may still be on its way, and
 * arrive when nothing refuses it any more.
 */
export function noteRefusedRepetition(error: Error): void {
  refusedRepetitions.add(error)
}

/**
 * Whether a request that failed so may have taken effect, or may yet. Only an answer that says what became of it rules
 * that out, or the certainty that it was never sent; so an abort and a defect are uncertain too.
 */
export function isUncertain(error: unknown): boolean {
  if (error instanceof Error && refusedRepetitions.has(error)) return true
  if (error instanceof KvError) return UNCERTAIN_CODES.has(error.code)
  if (error instanceof ConnectionError) return error.mayHaveTakenEffect
  // Success with a body that makes no sense is no refusal.
  if (error instanceof ServerError) return error.status >= 500 || error.status < 300
  return true
}
