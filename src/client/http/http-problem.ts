import { type ErrorCode, type ErrorFields, KvError } from '../../errors/kv-error.js'
import { decodeMessage } from './http-message.js'
import { ServerError } from './server-error.js'

/** The codes that are `KvError`s; a code that `ErrorFields` gains and this lacks does not compile. */
const KNOWN = {
  invalid_argument: true,
  unauthorized: true,
  forbidden: true,
  not_found: true,
  txn_not_found: true,
  method_not_allowed: true,
  key_locked: true,
  lock_wait_timeout: true,
  write_conflict: true,
  already_exists: true,
  already_committed: true,
  txn_lock_not_found: true,
  commit_ts_expired: true,
  pessimistic_lock_not_found: true,
  pessimistic_lock_rolled_back: true,
  deadlock: true,
  assertion_failed: true,
  primary_mismatch: true,
  precondition_failed: true,
  idempotency_mismatch: true,
  payload_too_large: true,
  unsupported_media_type: true,
  ts_below_safe_point: true,
  overloaded: true,
  storage_unavailable: true,
} as const satisfies Record<ErrorCode, true>

interface Problem {
  readonly code: string
  readonly detail: string | undefined
  readonly errors: readonly Problem[] | undefined
  /** The code's own. */
  readonly fields: Readonly<Record<string, unknown>>
}

/** The error that an answer without success stands for. */
export function errorOf(status: number, contentType: string | null, body: Uint8Array): KvError | ServerError {
  const problem = problemOf(body, contentType)
  if (problem !== undefined) return toError(problem, status)
  return new ServerError('unexpected_answer', `HTTP ${status} with a body that is no problem of PerKV`, status)
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
    retryable: _retryable,
    errors,
    ...fields
  } = message as Record<string, unknown>
  if (typeof code !== 'string') return undefined
  return {
    code,
    detail: typeof detail === 'string' ? detail : undefined,
    errors: Array.isArray(errors) ? errors.flatMap((entry) => parse(entry) ?? []) : undefined,
    fields,
  }
}

function toError(problem: Problem, status: number): KvError | ServerError {
  const { code, detail = code, errors, fields } = problem
  if (!isKnown(code)) return new ServerError(code, detail, status, fields)
  const entries = errors?.map((entry) => toError(entry, status)).filter((entry) => entry instanceof KvError)
  // The contract says which fields go with which code.
  return new KvError(code, detail, fields as unknown as ErrorFields[ErrorCode], entries && { errors: entries })
}

function isKnown(code: string): code is ErrorCode {
  return Object.hasOwn(KNOWN, code)
}
