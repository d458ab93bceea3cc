import type { FastifyError } from 'fastify'
import { invalid, isKvError, isRetryable, KvError } from '../../errors/kv-error.js'
import { errorRow } from '../../errors/registry.js'
import { RETRY_AFTER_S } from '../../limits.js'
import { CorruptRecord } from '../../percolator/codec/key.js'
import type { Plain } from './wire.js'

export interface Problem {
  readonly code: string
  readonly status: number
  /** Headers besides the content type, with lower-case names. */
  readonly headers: Readonly<Record<string, string>>
  /** Members of RFC 9457 and the fields of the code, with camelCase names. */
  readonly body: Plain
  /** A defect of the server or a failing engine, which is logged. */
  readonly isServerFault: boolean
}

/** Errors that are no fault of the server: overload, a deadline, or a store that lacks the feature. */
const NO_FAULTS: ReadonlySet<string> = new Set(['overloaded', 'deadline_exceeded', 'not_supported'])

/** @param requestId included in `internal` problems, so that a report of a user leads to the log line. */
export function problemOf(error: unknown, requestId: string): Problem {
  const known: KvError | undefined = error instanceof KvError ? error : fromFastify(error)
  if (known === undefined) {
    const { status, title } = errorRow('internal')
    const detail = 'a defect of the server; its log has more under this request_id'
    const body = { title, status, code: 'internal', detail, requestId }
    return { code: 'internal', status, headers: {}, body, isServerFault: true }
  }
  const { code, message, fields } = known
  const detail = message.length > DETAIL_LENGTH_MAX ? cut(message) : message
  const { status, title, retryable } = errorRow(code)
  const errors = known.errors?.map((entry) => ({ code: entry.code, ...entry.fields }))
  const body = {
    title,
    status,
    code,
    detail,
    ...fields,
    ...(retryable !== undefined && { retryable: isRetryable(known) }),
    ...(errors && { errors }),
  }
  return {
    code,
    status,
    headers: headersOf(known),
    body,
    isServerFault: status >= 500 && !NO_FAULTS.has(code),
  }
}

/** A path, or keys as hex, may be many times as long. The text after a name is more informative than the rest of the name. */
const DETAIL_LENGTH_MAX = 2000
const DETAIL_END_LENGTH = 500

function cut(detail: string): string {
  const start = detail.slice(0, DETAIL_LENGTH_MAX - DETAIL_END_LENGTH).toWellFormed()
  return `${start}…${detail.slice(-DETAIL_END_LENGTH).toWellFormed()}`
}

function headersOf(error: KvError): Readonly<Record<string, string>> {
  if (isKvError(error, 'overloaded')) return { 'retry-after': String(RETRY_AFTER_S) }
  if (isKvError(error, 'method_not_allowed')) return { allow: error.fields.allow.join(', ') }
  if (isKvError(error, 'ts_below_safe_point') && error.fields.resync !== undefined) {
    const { resync } = error.fields
    return resync.length <= LINK_LENGTH_MAX ? { link: `<${resync}>; rel="resync"` } : {}
  }
  return isKvError(error, 'unauthorized') ? { 'www-authenticate': 'Bearer' } : {}
}

/** Clients bound the length of headers. The body has the whole path. */
const LINK_LENGTH_MAX = 4096

/** Converts the errors that fastify raises itself: bodies, media types, URLs. */
function fromFastify(error: unknown): KvError | undefined {
  if (!(error instanceof Error) || error instanceof CorruptRecord) return undefined
  const { statusCode, message, code } = error as FastifyError
  switch (statusCode) {
    case 415:
      return new KvError(
        'unsupported_media_type',
        'send the body as application/json or application/msgpack (curl: --json)',
        {},
      )
    case 400:
      return invalid(code === 'FST_ERR_BAD_URL' ? 'path' : 'body', message)
    default:
      return isUnknownMethod(error) ? invalid('headers', MALFORMED) : undefined
  }
}

export const MALFORMED = 'the request is malformed HTTP'

/**
 * Node's parser accepts methods of RTSP, and `PRI` in a line without a version. No router has them, not even fastify's for 404.
 */
export function isUnknownMethod(error: unknown): boolean {
  return error instanceof Error && (error as FastifyError).code === 'FST_ERR_NOT_FOUND'
}
