import { parse } from 'node:querystring'
import { tooLarge } from '../../bytes/byte-limits.js'
import { invalid, type KvError } from '../../errors/kv-error.js'
import { didYouMean, nameInError } from '../../errors/nearest-name.js'
import { unixMsOfInstant } from '../../instant.js'
import { LOCK_WAIT_MS_DEFAULT, LOCK_WAIT_MS_MAX, TIMEOUT_MS_MAX } from '../../limits.js'
import { LOGICAL_PER_MS, type Timestamp, timestampFromMs } from '../../timestamp.js'

/** Query parameters, still percent-encoded: keys are bytes and other parameters are text, so each reader decodes its own. */
export type RawQuery = Readonly<Record<string, string | string[] | undefined>>

const NONE: RawQuery = Object.freeze({})

/** `+` becomes an escaped space, as forms and URLSearchParams write it; nothing else is decoded. */
export function parseRawQuery(text: string): RawQuery {
  return text === '' ? NONE : (parse(text, '&', '=', { decodeURIComponent: (s) => s, maxKeys: 0 }) as RawQuery)
}

export function unknownParameter(
  query: RawQuery,
  known: readonly string[],
  lists: readonly string[] = [],
): KvError<'invalid_argument'> | undefined {
  if (query === NONE) return undefined
  for (const name in query) {
    if (!known.includes(name)) {
      const shown = nameInError(name)
      return invalid(shown, `${shown} is not a known query parameter${didYouMean(name, known)}`)
    }
    if (typeof query[name] !== 'string' && !lists.includes(name))
      return invalid(name, `${name} is given more than once`)
  }
  return undefined
}

export function percentDecode(text: string, field: string): Buffer {
  if (!text.includes('%')) return Buffer.from(text, 'utf8')
  const bytes = Buffer.allocUnsafe(Buffer.byteLength(text))
  let length = 0
  let from = 0
  for (let at = text.indexOf('%'); at !== -1; at = text.indexOf('%', from)) {
    length += bytes.write(text.slice(from, at), length, 'utf8')
    const hex = text.slice(at + 1, at + 3)
    if (!/^[0-9a-fA-F]{2}$/.test(hex)) throw invalid(field, `${field} holds a bad percent-escape`)
    bytes[length++] = Number.parseInt(hex, 16)
    from = at + 3
  }
  length += bytes.write(text.slice(from), length, 'utf8')
  return bytes.subarray(0, length)
}

/** @returns undefined when absent or empty. @throws KvError `payload_too_large`, `invalid_argument`. */
export function queryBytes(query: RawQuery, name: string, bytesMax: number): Buffer | undefined {
  const raw = query[name]
  return typeof raw !== 'string' || raw === '' ? undefined : bytesInQuery(raw, name, bytesMax)
}

export function bytesInQuery(raw: string, name: string, bytesMax: number): Buffer {
  const bytes = percentDecode(raw, name)
  if (bytes.length > bytesMax) throw tooLarge(name, bytes.length, bytesMax)
  return bytes
}

export function queryText(query: RawQuery, name: string): string | undefined {
  const raw = query[name]
  if (typeof raw !== 'string') return undefined
  return raw.includes('%') ? percentDecode(raw, name).toString('utf8') : raw
}

export function queryInteger(query: RawQuery, name: string, min: number, max: number): number | undefined {
  const text = queryText(query, name)
  if (text === undefined) return undefined
  const value = /^\d{1,16}$/.test(text) ? Number(text) : Number.NaN
  if (value >= min && value <= max) return value
  throw invalid(name, `${name} must be an integer from ${min} to ${max}`)
}

export function lockWaitMs(query: RawQuery): number {
  return queryInteger(query, 'lock_wait_ms', 0, LOCK_WAIT_MS_MAX) ?? LOCK_WAIT_MS_DEFAULT
}

export function timeoutMs(query: RawQuery): number | undefined {
  return queryInteger(query, 'timeout_ms', 1, TIMEOUT_MS_MAX)
}

/** `?reverse`, `?reverse=true` and `?reverse=1` are true. */
export function queryFlag(query: RawQuery, name: string): boolean | undefined {
  const text = queryText(query, name)
  if (text === undefined) return undefined
  if (text === '' || text === 'true' || text === '1') return true
  if (text === 'false' || text === '0') return false
  throw invalid(name, `${name} must be true or false`)
}

export function queryList(query: RawQuery, name: string): readonly string[] {
  const raw = query[name]
  return raw === undefined ? [] : typeof raw === 'string' ? [raw] : raw
}

export function queryTimestamp(query: RawQuery): Timestamp | undefined {
  const ts = queryInteger(query, 'ts', 0, Number.MAX_SAFE_INTEGER) || undefined
  const at = queryText(query, 'at')
  if (at === undefined) return ts
  if (ts !== undefined) throw invalid('at', 'give ts or at, not both')
  return timestampOfInstant('at', at)
}

/** The last timestamp of the instant's millisecond, so that a read sees every commit of that millisecond. */
export function timestampOfInstant(field: string, text: string): Timestamp {
  const unixMs = unixMsOfInstant(text.replace(/ (\d\d:\d\d)$/, '+$1')) // An unescaped plus was decoded to a space.
  const ts = unixMs === undefined ? 0 : timestampFromMs(unixMs) + LOGICAL_PER_MS - 1
  if (ts > 0 && ts <= Number.MAX_SAFE_INTEGER) return ts
  throw invalid(field, `${field} must be an RFC 3339 instant after 1970, such as 2026-01-31T12:00:00Z`)
}
