import { Readable } from 'node:stream'
import type { FastifyInstance } from 'fastify'
import { resolvingLocks } from '../../client/lock-resolver.js'
import { PAGE_BYTES_MAX, SCAN_LIMIT_DEFAULT, SCAN_LIMIT_MAX, SCAN_PAGE } from '../../limits.js'
import type { Pair } from '../../percolator/api.js'
import { invalid } from '../../percolator/errors.js'
import type { Store } from '../../store/store.js'
import { answer } from '../answer.js'
import type { AppContext } from '../context.js'
import { type Cursor, decodeCursor, encodeCursor } from '../cursor.js'
import { acceptedFormats, CONTENT_TYPE } from '../media-type.js'
import { lockWaitMs, queryBytes, queryFlag, queryInteger, queryText, queryTimestamp, type RawQuery } from '../query.js'
import { afterKey, rangeOf } from '../range.js'
import { toJson } from '../wire.js'

const PARAMETERS = [
  'prefix',
  'start',
  'end',
  'limit',
  'reverse',
  'keys_only',
  'count_only',
  'ts',
  'at',
  'cursor',
  'lock_wait_ms',
]

const CHUNK_LENGTH = 64 * 1024

/** A scan of one snapshot, from its beginning or from where a cursor left it. */
interface Scan extends Omit<Cursor, 'after'> {
  readonly after: Uint8Array | undefined
  readonly lockWaitMs: number
}

/** `GET /v1/kv`: a page of pairs, a count, or a stream of NDJSON lines, of one snapshot. */
export function scanRoutes(app: FastifyInstance, { store, limits }: AppContext): void {
  app.get('/v1/kv', { config: { query: PARAMETERS } }, async (request, reply) => {
    const query = request.query as RawQuery
    const isStream = acceptedFormats(request.headers.accept)[0] === 'ndjson'
    const isCount = queryFlag(query, 'count_only') ?? false
    const limit = queryInteger(query, 'limit', 1, isStream ? Number.MAX_SAFE_INTEGER : SCAN_LIMIT_MAX)
    const scan = await scanOf(store, query, limits.keyBytesMax, limit)
    if (isCount) {
      if (queryText(query, 'cursor') !== undefined) throw invalid('count_only', 'count_only does not go with cursor')
      return answer(request, reply, { count: await count(store, scan), ts: scan.ts })
    }
    if (isStream) {
      const pages = pagesOf(store, { ...scan, limit: limit ?? Number.POSITIVE_INFINITY })
      const first = await pages.next() // Before the headers go out: what fails at once is answered with a problem.
      return reply.header('content-type', CONTENT_TYPE.ndjson).send(Readable.from(lines(first, pages)))
    }
    const { pairs, isCut } = await page(store, scan, scan.limit + 1)
    if (pairs.length > scan.limit) pairs.pop()
    else if (!isCut) return answer(request, reply, { pairs, ts: scan.ts })
    const after = (pairs.at(-1) as Pair).key
    const cursor = encodeCursor({ ...scan, after }, store.cursorSecret)
    return answer(request, reply, { pairs, ts: scan.ts, cursor })
  })
}

async function scanOf(store: Store, query: RawQuery, keyBytesMax: number, limit: number | undefined): Promise<Scan> {
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
  const ts = queryTimestamp(query)
  const cursorText = queryText(query, 'cursor')
  const wait = lockWaitMs(query)
  if (cursorText === undefined) {
    return {
      ...range,
      ts: ts ?? (await store.tso(1)),
      reverse: reverse ?? false,
      keyOnly: keyOnly ?? false,
      limit: limit ?? SCAN_LIMIT_DEFAULT,
      after: undefined,
      lockWaitMs: wait,
    }
  }
  const cursor = decodeCursor(cursorText, store.cursorSecret)
  // The cursor says it all; parameters may be repeated beside it, but not changed.
  requireSame('start', range.start, cursor.start)
  requireSame('end', range.end, cursor.end)
  if ((reverse ?? cursor.reverse) !== cursor.reverse) throw invalid('reverse', 'reverse differs from the cursor’s')
  if ((ts ?? cursor.ts) !== cursor.ts) throw invalid('ts', 'ts differs from the cursor’s')
  return { ...cursor, keyOnly: keyOnly ?? cursor.keyOnly, limit: limit ?? cursor.limit, lockWaitMs: wait }
}

function requireSame(field: string, given: Uint8Array | undefined, inCursor: Uint8Array | undefined): void {
  if (given === undefined || (inCursor !== undefined && Buffer.compare(given, inCursor) === 0)) return
  throw invalid(field, `${field} differs from the cursor’s`)
}

async function page(store: Store, scan: Scan, limit: number): Promise<{ pairs: Pair[]; isCut: boolean }> {
  const { ts, reverse, keyOnly, after } = scan
  const start = after !== undefined && !reverse ? afterKey(after) : scan.start
  const end = after !== undefined && reverse ? after : scan.end
  const { pairs, isCut } = await resolvingLocks(store, scan.lockWaitMs, () =>
    store.scan({ start, end, ts, reverse, keyOnly, limit, bytesMax: PAGE_BYTES_MAX }),
  )
  return { pairs: [...pairs], isCut: isCut ?? false }
}

/** All pairs of a scan, up to its limit, some at a time. */
async function* pagesOf(store: Store, scan: Scan): AsyncGenerator<Pair[], void> {
  let after = scan.after
  for (let left = scan.limit; left > 0; ) {
    const size = Math.min(left, SCAN_PAGE)
    const { pairs, isCut } = await page(store, { ...scan, after }, size)
    if (pairs.length > 0) yield pairs
    if (pairs.length < size && !isCut) return
    after = (pairs.at(-1) as Pair).key
    left -= pairs.length
  }
}

async function count(store: Store, scan: Scan): Promise<number> {
  let total = 0
  for await (const pairs of pagesOf(store, { ...scan, keyOnly: true, limit: Number.POSITIVE_INFINITY }))
    total += pairs.length
  return total
}

/** Pulled by the socket: nothing is read ahead of what the client takes. */
async function* lines(
  first: IteratorResult<Pair[], void>,
  rest: AsyncGenerator<Pair[], void>,
): AsyncGenerator<string, void> {
  if (first.done) return
  yield* chunksOf(first.value)
  for await (const pairs of rest) yield* chunksOf(pairs)
}

/** Lines together in strings of some size: one write for many short pairs, and never many long ones in one string. */
function* chunksOf(pairs: readonly Pair[]): Generator<string, void> {
  let chunk = ''
  for (const pair of pairs) {
    chunk += `${toJson(pair)}\n`
    if (chunk.length < CHUNK_LENGTH) continue
    yield chunk
    chunk = ''
  }
  if (chunk !== '') yield chunk
}
