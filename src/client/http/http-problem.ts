import { KvError } from '../../errors/kv-error.js'
import { type ErrorCode, type ErrorFields, isErrorCode } from '../../errors/registry.js'
import { decodeMessage } from './http-message.js'
import { ServerError, unexpectedAnswer } from './server-error.js'

interface Problem {
  readonly code: string
  readonly detail: string | undefined
  readonly errors: readonly Problem[] | undefined
  /** The fields that belong to the code. */
  readonly fields: Readonly<Record<string, unknown>>
}

export function errorOf(status: number, contentType: string | null, body: Uint8Array): KvError | ServerError {
  const problem = problemOf(body, contentType)
  if (problem !== undefined) return toError(problem, status)
  return unexpectedAnswer(status, `HTTP ${status} without a problem in its body`)
}

function problemOf(body: Uint8Array, contentType: string | null): Problem | undefined {
  try {
    return parse(decodeMessage(body, contentType))
  } catch {
    return undefined
  }
}

function parse(message: unknown): Problem | undefined {
  if (typeof message !== 'object' || message === null || !('code' in message)) return undefined
  const {
    title: _title,
    status: _status,
    code,
    detail,
    retryable,
    errors,
    ...others
  } = message as Record<string, unknown>
  if (typeof code !== 'string') return undefined
  // Every lost race has `retryable`. It is a field of the code only for refused acknowledgements, which name what they
  // acknowledge.
  const isField = code === 'write_conflict' && ('observer' in others || 'consumer' in others)
  const fields = isField ? { ...others, retryable } : others
  return {
    code,
    detail: typeof detail === 'string' ? detail : undefined,
    errors: Array.isArray(errors) ? errors.flatMap((entry) => parse(entry) ?? []) : undefined,
    fields,
  }
}

function toError(problem: Problem, status: number): KvError | ServerError {
  const { code, detail = code, errors, fields } = problem
  if (!isErrorCode(code)) return new ServerError(code, detail, status, fields)
  const entries = errors?.map((entry) => toError(entry, status)).filter((entry) => entry instanceof KvError)
  // The server guarantees the fields of each code (`ERRORS`).
  return new KvError(code, detail, fields as unknown as ErrorFields[ErrorCode], entries && { errors: entries })
}
