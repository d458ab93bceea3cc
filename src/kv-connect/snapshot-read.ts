import { requireKey, tooLarge } from '../bytes/byte-limits.js'
import { asBuffer } from '../bytes/key-text.js'
import type { Waiting } from '../coordinator/lock-resolver.js'
import type { Database } from '../database/database.js'
import { invalid } from '../errors/kv-error.js'
import { type Awaitable, after } from '../event-loop/after.js'
import { KV_KEY_BYTES_MAX, KV_READ_ENTRIES_MAX, type Limits, MAX_RETRIES_DEFAULT } from '../limits.js'
import type { Op, OpResult } from '../txn/op.js'
import type { Entry } from './answers.js'
import { type KvDatabase, withPrefix } from './kv-database.js'
import { type ReadRange, snapshotReadFrom } from './messages.js'

type ReadOp = Extract<Op, { op: 'get' | 'scan' }>

export interface SnapshotRead {
  /** For each range; undefined for an empty one. */
  readonly ranges: readonly (ReadOp | undefined)[]
  readonly ops: readonly ReadOp[]
}

/** @throws KvError `invalid_argument`, `payload_too_large` */
export function snapshotReadOf(body: Uint8Array, database: KvDatabase, limits: Limits): SnapshotRead {
  const asked = snapshotReadFrom(body)
  let entries = 0
  for (const { limit, start, end } of asked) {
    if (limit <= 0) throw invalid('limit', 'The read range limit of the snapshot read request is invalid.')
    requireBound(start)
    requireBound(end)
    entries += limit
  }
  if (entries > KV_READ_ENTRIES_MAX) throw tooLarge('limit', entries, KV_READ_ENTRIES_MAX)
  const ranges = asked.map((range) => readOf(range, database, limits))
  return { ranges, ops: ranges.filter((op) => op !== undefined) }
}

/** One more than a key may have: the key after the longest one is a bound. */
function requireBound(bound: Uint8Array): void {
  if (bound.length > KV_KEY_BYTES_MAX + 1) throw tooLarge('key', bound.length, KV_KEY_BYTES_MAX + 1)
}

/** A client reads one key as the range from it to the next key. */
function readOf({ start, end, limit, reverse }: ReadRange, database: KvDatabase, limits: Limits): ReadOp | undefined {
  if (Buffer.compare(start, end) >= 0) return undefined
  const from = withPrefix(database, start)
  if (isNext(end, start)) {
    requireKey(from, 'key', limits.keyBytesMax)
    return { op: 'get', key: from }
  }
  return { op: 'scan', start: from, end: withPrefix(database, end), limit, reverse, keyOnly: false }
}

function isNext(end: Uint8Array, start: Uint8Array): boolean {
  if (end.length !== start.length + 1 || end[start.length] !== 0) return false
  return asBuffer(end).compare(start, 0, start.length, 0, start.length) === 0
}

/**
 * Reads all ranges at one moment, in the order of the request. The answer to a read of one key is most often there at once.
 * @param waiting called when it is not.
 */
export function readSnapshot(
  database: Pick<Database, 'get' | 'transact'>,
  { ranges, ops }: SnapshotRead,
  waiting: () => Waiting & { readonly caller: string | undefined },
): Awaitable<readonly (readonly Entry[])[]> {
  const readAll = async (): Promise<readonly (readonly Entry[])[]> => {
    const { answer } = await database.transact({ checks: [], ops, maxRetries: MAX_RETRIES_DEFAULT, ...waiting() })
    const results = answer.results.values()
    return ranges.map((op) => (op === undefined ? [] : entriesOf(op, results.next().value)))
  }
  const [first] = ops
  const key = ranges.length === 1 && first !== undefined ? firstKey(first) : undefined
  if (first === undefined || key === undefined) return readAll()
  return after(database.get({ key }, waiting), (found) => {
    if (found.found) return [[{ key, value: found.value, commitTs: found.commitTs }]]
    return first.op === 'get' ? [[]] : readAll()
  })
}

/**
 * The key whose version, if there is one, is all that the op reads. Deno reads a key as the range to the next key, and `@deno/kv`
 * as the first entry from it on.
 */
function firstKey(op: ReadOp): Uint8Array | undefined {
  if (op.op === 'get') return op.key
  return op.limit === 1 && !op.reverse ? op.start : undefined
}

function entriesOf(op: ReadOp, result: OpResult | undefined): readonly Entry[] {
  if (result === undefined) throw new Error('a read has no result')
  if ('pairs' in result) return result.pairs.map(({ key, value, commitTs = 0 }) => ({ key, value, commitTs }))
  if (op.op !== 'get' || !('found' in result) || !result.found) return []
  return [{ key: op.key, value: result.value, commitTs: result.commitTs ?? 0 }]
}
