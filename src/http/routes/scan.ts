import { Readable } from 'node:stream'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { afterKey } from '../../bytes/key-range.js'
import type { MergedPair, MergedScan, ScanOrder } from '../../coordinator/write-buffer.js'
import { invalid } from '../../errors/kv-error.js'
import { primed } from '../../event-loop/primed.js'
import { SCAN_LIMIT_DEFAULT, SCAN_PAGE, STREAM_PAGE_BYTES } from '../../limits.js'
import type { Timestamp } from '../../timestamp.js'
import { hangUp } from '../connections/answer-end.js'
import { answer } from '../wire/answer.js'
import { type Cursor, decodeCursor, encodeCursor } from '../wire/cursor.js'
import { acceptedFormats, CONTENT_TYPE } from '../wire/media-type.js'
import {
  lockWaitMs,
  queryBytes,
  queryFlag,
  queryInteger,
  queryText,
  queryTimestamp,
  type RawQuery,
} from '../wire/query.js'
import { rangeOf } from '../wire/range.js'
import { pairToJson } from '../wire/wire.js'
import type { AppContext } from './context.js'
import { readNow } from './read-now.js'

/** Of every scan; a snapshot's may choose its timestamp too. */
export const SCAN_PARAMETERS: readonly string[] = [
  'prefix',
  'start',
  'end',
  'limit',
  'reverse',
  'keys_only',
  'count_only',
  'cursor',
  'lock_wait_ms',
]

const CHUNK_LENGTH = 64 * 1024

/** Reads ranges at one timestamp: a snapshot, or an open transaction with its own writes. */
export interface Scanner {
  readonly ts: Timestamp
  scan(request: ScanOrder & { readonly bytesMax: number }): Promise<MergedScan>
}

/** A scan from its beginning, or from where a cursor left it. */
interface Scan extends Omit<Cursor, 'after'> {
  readonly after: Uint8Array | undefined
}

/** `GET /v1/kv`: a page of pairs, a count, or a stream of NDJSON lines, of one snapshot. */
export function scanRoutes(app: FastifyInstance, context: AppContext): void {
  app.get('/v1/kv', { config: { access: 'read', query: [...SCAN_PARAMETERS, 'ts', 'at'] } }, async (request, reply) => {
    const query = request.query as RawQuery
    const asked = readScan(request, context)
    const ts = queryTimestamp(query)
    if (asked.cursor !== undefined && (ts ?? asked.cursor.ts) !== asked.cursor.ts)
      throw invalid('ts', 'ts differs from the cursor’s')
    const waitMs = lockWaitMs(query)
    const signal = hangUp(reply.raw)
    admitStream(reply, context, asked)
    const answerAt = (at: Timestamp) => {
      const snapshot = context.coordinator.snapshot(at, { lockWaitMs: waitMs })
      const scan: Scanner['scan'] = async (range) => {
        const { pairs, isCut } = await snapshot.scan(range, undefined, signal)
        return { pairs, cutAfter: isCut ? pairs.at(-1)?.key : undefined }
      }
      return answerScan(request, reply, context, asked, { ts: at, scan })
    }
    const at = asked.cursor?.ts ?? ts
    return at === undefined ? readNow(context, answerAt) : answerAt(at)
  })
}

/** What a request asks for, beside the timestamp. */
export interface AskedScan extends Omit<Scan, 'ts' | 'limit'> {
  /** As given; a cursor has one of its own, for pages. */
  readonly limit: number | undefined
  readonly cursor: Cursor | undefined
  readonly isCount: boolean
  readonly isStream: boolean
}

/** @throws KvError `invalid_argument`, `forbidden` for a range that the request's token does not reach. */
export function readScan(request: FastifyRequest, { store, limits }: AppContext): AskedScan {
  const { keyBytesMax, scanLimitMax } = limits
  const query = request.query as RawQuery
  const isStream = acceptedFormats(request.headers.accept)[0] === 'ndjson'
  const isCount = queryFlag(query, 'count_only') ?? false
  const limit = queryInteger(query, 'limit', 1, isStream ? Number.MAX_SAFE_INTEGER : scanLimitMax)
  const range = rangeOf(
    {
      prefix: queryBytes(query, 'prefix', keyBytesMax),
      start: queryBytes(query, 'start', keyBytesMax),
      end: queryBytes(query, 'end', keyBytesMax),
    },
    'prefix',
  )
  const reverse = queryFlag(query, 'reverse')
  const keyOnly = queryFlag(query, 'keys_only')
  const cursorText = queryText(query, 'cursor')
  if (cursorText === undefined) {
    request.grant.requireRange(range, 'prefix')
    const order = { reverse: reverse ?? false, keyOnly: keyOnly ?? false }
    return { ...range, ...order, limit, after: undefined, cursor: undefined, isCount, isStream }
  }
  if (isCount) throw invalid('count_only', 'count_only does not go with cursor')
  const cursor = decodeCursor(cursorText, store.cursorSecret)
  request.grant.requireRange(cursor, 'cursor')
  // The cursor says it all; parameters may be repeated beside it, but not changed.
  requireSame('start', range.start, cursor.start)
  requireSame('end', range.end, cursor.end)
  if ((reverse ?? cursor.reverse) !== cursor.reverse) throw invalid('reverse', 'reverse differs from the cursor’s')
  return { ...cursor, keyOnly: keyOnly ?? cursor.keyOnly, limit, cursor, isCount, isStream }
}

/** Before anything of a stream is read. @throws KvError `overloaded` */
export function admitStream(reply: FastifyReply, { traffic }: AppContext, { isStream, isCount }: AskedScan): void {
  if (isStream && !isCount) traffic.openStream(reply)
}

/** Answers a page with a cursor, a count, or a stream that was admitted. */
export async function answerScan(
  request: FastifyRequest,
  reply: FastifyReply,
  { store, limits }: AppContext,
  asked: AskedScan,
  scanner: Scanner,
): Promise<FastifyReply> {
  const { ts } = scanner
  const { start, end, reverse, keyOnly, after } = asked
  const scan = { ts, start, end, reverse, keyOnly, after }
  if (asked.isCount) return answer(request, reply, { count: await count(scanner, scan), ts })
  if (asked.isStream) {
    const pages = pagesOf(scanner, { ...scan, limit: asked.limit ?? Number.POSITIVE_INFINITY })
    const first = await primed(pages)
    const stream = request.method === 'HEAD' ? [] : lines(first) // fastify would read all of it, and send nothing.
    return reply.header('content-type', CONTENT_TYPE.ndjson).send(Readable.from(stream))
  }
  const limit = asked.limit ?? asked.cursor?.limit ?? SCAN_LIMIT_DEFAULT
  const { pairs, cutAfter } = await page(scanner, scan, limit + 1, limits.pageBytesMax)
  const isFull = pairs.length > limit
  const shown = isFull ? pairs.slice(0, limit) : pairs
  const last = isFull ? shown.at(-1)?.key : cutAfter
  const cursor = last && encodeCursor({ ...scan, limit, after: last }, store.cursorSecret)
  return answer(request, reply, { pairs: shown, ts, cursor })
}

function requireSame(field: string, given: Uint8Array | undefined, inCursor: Uint8Array | undefined): void {
  if (given === undefined || (inCursor !== undefined && Buffer.compare(given, inCursor) === 0)) return
  throw invalid(field, `${field} differs from the cursor’s`)
}

function page(scanner: Scanner, scan: Omit<Scan, 'limit'>, limit: number, bytesMax: number): Promise<MergedScan> {
  const { reverse, keyOnly, after } = scan
  const start = after !== undefined && !reverse ? afterKey(after) : scan.start
  const end = after !== undefined && reverse ? after : scan.end
  return scanner.scan({ start, end, reverse, keyOnly, limit, bytesMax })
}

/** All pairs of a scan, up to its limit, some at a time. While one page is used the next is read. */
async function* pagesOf(scanner: Scanner, scan: Scan): AsyncGenerator<readonly MergedPair[], void> {
  const pageAfter = (after: Uint8Array | undefined, left: number): Promise<MergedScan> => {
    const reading = page(scanner, { ...scan, after }, Math.min(left, SCAN_PAGE), STREAM_PAGE_BYTES)
    reading.catch(() => {}) // Whoever stops early doesn't hear of it.
    return reading
  }
  let left = scan.limit
  let next: Promise<MergedScan> | undefined = pageAfter(scan.after, left)
  while (next !== undefined) {
    const { pairs, cutAfter } = (await next) as MergedScan
    const isWhole = cutAfter === undefined && pairs.length < Math.min(left, SCAN_PAGE)
    left -= pairs.length
    const after = cutAfter ?? pairs.at(-1)?.key
    next = isWhole || left <= 0 ? undefined : pageAfter(after, left)
    if (pairs.length > 0) yield pairs
  }
}

async function count(scanner: Scanner, scan: Omit<Scan, 'limit'>): Promise<number> {
  let total = 0
  for await (const pairs of pagesOf(scanner, { ...scan, keyOnly: true, limit: Number.POSITIVE_INFINITY }))
    total += pairs.length
  return total
}

/** Pulled by the socket: no more than a page is read ahead of what the client takes. */
async function* lines(pages: AsyncGenerator<readonly MergedPair[], void>): AsyncGenerator<string, void> {
  for await (const pairs of pages) yield* chunksOf(pairs)
}

/** Lines together in strings of some size: one write for many short pairs, and never many long ones in one string. */
function* chunksOf(pairs: readonly MergedPair[]): Generator<string, void> {
  let chunk = ''
  for (const pair of pairs) {
    chunk += `${pairToJson(pair)}\n`
    if (chunk.length < CHUNK_LENGTH) continue
    yield chunk
    chunk = ''
  }
  if (chunk !== '') yield chunk
}
