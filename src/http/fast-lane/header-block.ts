import { bearerToken } from '../admission/access.js'
import { type BrowserGuard, refusal } from '../connections/browser-safety.js'
import { isHost } from '../connections/request-head.js'
import { answerFormat, problemFormat } from '../wire/answer.js'
import { wantsEvents } from '../wire/media-type.js'

export interface HeaderBlock {
  /** Bytes of the body; undefined when no header says. */
  readonly contentLength: number | undefined
  /** Whether the body is JSON in UTF-8. */
  readonly isJson: boolean
  readonly token: string | undefined
  /** The format of an answer that is data. */
  readonly answerFormat: 'json' | 'msgpack'
  readonly problemFormat: 'json' | 'msgpack'
  /** As received: the content is not checked. */
  readonly traceparent: string | undefined
  /** `x-denokv-version` and `x-denokv-database-id` */
  readonly kvVersion: string | undefined
  readonly kvDatabaseId: string | undefined
}

/** Headers that mean something to the server. */
const READ = [
  'host',
  'connection',
  'content-length',
  'content-type',
  'authorization',
  'accept',
  'user-agent',
  'traceparent',
  'tracestate',
  'x-denokv-database-id',
  'x-denokv-version',
]
/** Headers that clients and proxies often send, and that change nothing about the requests of the fast lane. */
const INERT = [
  'accept-encoding',
  'accept-language',
  'cache-control',
  'dnt',
  'forwarded',
  'pragma',
  'priority',
  'sec-fetch-mode',
  'via',
  'x-forwarded-for',
  'x-forwarded-host',
  'x-forwarded-proto',
  'x-real-ip',
  'x-request-id',
]
const KNOWN: ReadonlySet<string> = new Set([...READ, ...INERT])

const PRINTABLE = /^[\x20-\x7e]*$/
const LENGTH = /^(?:0|[1-9]\d{0,8})$/
const JSON_TYPE = /^application\/json(?:; ?charset=utf-8)?$/i
const KEEP_ALIVE = /^keep-alive$/i

/**
 * Reads the lines of a header block, each once.
 * @param text the block as Latin-1, each line with its CRLF, without the empty line at the end.
 * @returns undefined for a block that node:http must handle: it has an unlisted or repeated header, no valid Host, a refused
 *   browser, a stream of events as the answer, anything but printable ASCII, or a line that is no `name: value`.
 */
export function readHeaderBlock(text: string, guard: BrowserGuard | undefined): HeaderBlock | undefined {
  const found = new Map<string, string>()
  for (let at = 0; at < text.length; ) {
    const lineEnd = text.indexOf('\r\n', at)
    const colon = text.indexOf(':', at)
    if (lineEnd === -1 || colon === -1 || colon > lineEnd) return undefined
    const name = text.slice(at, colon).toLowerCase()
    const value = text.slice(colon + 1, lineEnd)
    if (!KNOWN.has(name) || found.has(name) || !PRINTABLE.test(value)) return undefined
    found.set(name, value.trim())
    at = lineEnd + 2
  }
  const length = found.get('content-length')
  const accept = found.get('accept')
  if (!isHost(found.get('host') ?? '') || !KEEP_ALIVE.test(found.get('connection') ?? 'keep-alive')) return undefined
  if (guard !== undefined && refusal(Object.fromEntries(found), '', guard) !== undefined) return undefined
  if ((length !== undefined && !LENGTH.test(length)) || wantsEvents(accept)) return undefined
  return {
    contentLength: length === undefined ? undefined : Number(length),
    isJson: JSON_TYPE.test(found.get('content-type') ?? ''),
    token: bearerToken(found.get('authorization')),
    answerFormat: answerFormat(accept),
    problemFormat: problemFormat(accept),
    traceparent: found.get('traceparent'),
    kvVersion: found.get('x-denokv-version'),
    kvDatabaseId: found.get('x-denokv-database-id'),
  }
}
