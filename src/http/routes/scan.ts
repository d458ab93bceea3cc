import { Readable } from 'node:stream'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { afterKey } from '../../bytes/key-range.js'
import type { MergedPair } from '../../coordinator/write-buffer.js'
import type { RangeRequest } from '../../database/database.js'
import { invalid } from '../../errors/kv-error.js'
import { DELETE_RANGE_LIMIT_DEFAULT, MAX_RETRIES_DEFAULT, SCAN_LIMIT_DEFAULT } from '../../limits.js'
import { whenOver } from '../connections/answer-end.js'
import { untilDeadline, waitingSignal } from '../connections/deadline.js'
import { answer } from '../wire/answer.js'
import { type Cursor, decodeCursor, encodeCursor } from '../wire/cursor.js'
import { answerOutcome, idempotencyOf } from '../wire/idempotency-key.js'
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
import { deleteRange, scanKeys } from '../wire/schemas/kv.js'
import { pairToJson } from '../wire/wire.js'
import type { AppContext } from './context.js'

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
  'timeout_ms',
]

const CHUNK_LENGTH = 64 * 1024

export function scanRoutes(app: FastifyInstance, context: AppContext): void {
  const config = { access: 'read', query: [...SCAN_PARAMETERS, 'ts', 'at'] } as const
  app.get('/v1/kv', { schema: scanKeys, config }, async (request, reply) => {
    const query = request.query as RawQuery
    const asked = readScan(request, context)
    const ts = queryTimestamp(query)
    if (asked.cursor !== undefined && (ts ?? asked.cursor.ts) !== asked.cursor.ts)
      throw invalid('ts', 'ts differs from the cursor’s')
    const at = asked.cursor?.ts ?? ts
    return answerScan(request, reply, context, asked, {
      ts: at,
      lockWaitMs: lockWaitMs(query),
    })
  })
}

export function deleteRangeRoute(app: FastifyInstance, context: AppContext): void {
  const { database, limits } = context
  const query = ['prefix', 'start', 'end', 'limit', 'cursor', 'lock_wait_ms', 'timeout_ms']
  const config = { access: 'write', query } as const
  app.delete('/v1/kv', { schema: deleteRange, config }, async (request, reply) => {
    const wait = lockWaitMs(request.query as RawQuery)
    const { start, end, after, cursor, limit: given } = readScan(request, context)
    if (start === undefined && end === undefined) throw invalid('prefix', 'give prefix, start or end')
    if (cursor?.reverse) throw invalid('cursor', 'the cursor is one of a scan in reverse')
    const limit = Math.min(given ?? cursor?.limit ?? DELETE_RANGE_LIMIT_DEFAULT, limits.scanLimitMax)
    const op = { op: 'delete_range', start: after === undefined ? start : afterKey(after), end, limit } as const
    const idempotency = await idempotencyOf(request, op)
    const txn = { checks: [], ops: [op], maxRetries: MAX_RETRIES_DEFAULT, lockWaitMs: wait, idempotency }
    const outcome = await untilDeadline(request, reply, (signal, handover) =>
      database.transact({ ...txn, signal, handover }),
    )
    const { startTs: ts, commitTs, results } = outcome.answer
    const { deleted, last } = results[0] as { readonly deleted: number; readonly last?: Uint8Array }
    const order = { ts, start, end, reverse: false, keyOnly: true, limit }
    const next = last && encodeCursor({ ...order, after: last }, database.store.cursorSecret)
    return answerOutcome(request, reply, outcome, { deleted, commitTs, cursor: next })
  })
}

export interface AskedScan extends Omit<Cursor, 'ts' | 'limit' | 'after'> {
  readonly after: Uint8Array | undefined
  /** The parameter `limit`. Otherwise a page has the limit of its cursor. */
  readonly limit: number | undefined
  readonly cursor: Cursor | undefined
  readonly isCount: boolean
  readonly isStream: boolean
}

export function readScan(request: FastifyRequest, { database, limits }: AppContext): AskedScan {
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
  const cursor = decodeCursor(cursorText, database.store.cursorSecret)
  request.grant.requireRange(cursor, 'cursor')
  // The cursor holds the range and order. Parameters may repeat them but not change them.
  requireSame('start', range.start, cursor.start)
  requireSame('end', range.end, cursor.end)
  if ((reverse ?? cursor.reverse) !== cursor.reverse) throw invalid('reverse', 'reverse differs from the cursor’s')
  return { ...cursor, keyOnly: keyOnly ?? cursor.keyOnly, limit, cursor, isCount, isStream }
}

/**
 * Answers a page with a cursor, a count, or a stream.
 * @param where the snapshot or transaction to read.
 * @throws KvError `overloaded` when too many streams are open, before it reads.
 */
export async function answerScan(
  request: FastifyRequest,
  reply: FastifyReply,
  { database, limits, traffic }: AppContext,
  asked: AskedScan,
  where: Pick<RangeRequest, 'ts' | 'txn' | 'lockWaitMs'>,
): Promise<FastifyReply> {
  const { start, end, reverse, keyOnly, after } = asked
  const range = { start, end, reverse, keyOnly, after, ...where }
  if (asked.isCount) {
    const counted = await untilDeadline(request, reply, (signal) => database.count({ ...range, signal }))
    return answer(request, reply, { ...counted })
  }
  if (asked.isStream) {
    traffic.openStream(reply)
    const { pages, ts, release } = await database.stream({
      ...range,
      signal: waitingSignal(request, reply), // Cuts the stream off, like every failure after its beginning.
      limit: asked.limit ?? Number.POSITIVE_INFINITY,
    })
    whenOver(reply.raw, release)
    const stream = request.method === 'HEAD' ? [] : lines(pages) // fastify would read the whole stream and send nothing.
    return reply
      .header('content-type', CONTENT_TYPE.ndjson)
      .header('snapshot-ts', String(ts))
      .send(Readable.from(stream))
  }
  const limit = asked.limit ?? asked.cursor?.limit ?? SCAN_LIMIT_DEFAULT
  const { pairs, cutAfter, ts, scan } = await untilDeadline(request, reply, (signal) =>
    database.scan({ ...range, signal, limit: limit + 1, bytesMax: limits.pageBytesMax, scan: asked.cursor?.scan }),
  )
  const isFull = pairs.length > limit
  const shown = isFull ? pairs.slice(0, limit) : pairs
  const last = isFull ? shown.at(-1)?.key : cutAfter
  const next = { ts, start, end, reverse, keyOnly, limit, scan }
  const cursor = last && encodeCursor({ ...next, after: last }, database.store.cursorSecret)
  return answer(request, reply, { pairs: shown, ts, cursor })
}

function requireSame(field: string, given: Uint8Array | undefined, inCursor: Uint8Array | undefined): void {
  if (given === undefined || (inCursor !== undefined && Buffer.compare(given, inCursor) === 0)) return
  throw invalid(field, `${field} differs from the cursor’s`)
}

/** The socket pulls the lines, so at most one page is read ahead of the client. */
async function* lines(pages: AsyncGenerator<readonly MergedPair[], void>): AsyncGenerator<string, void> {
  for await (const pairs of pages) yield* chunksOf(pairs)
}

/** Joins lines into chunks of about CHUNK_LENGTH characters: many short pairs in one write, and few long ones. */
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
