import { afterKey } from '../bytes/key-range.js'
import type { LockResolver } from '../coordinator/lock-resolver.js'
import { SnapshotReader } from '../coordinator/snapshot-reader.js'
import { LOCK_WAIT_MS_DEFAULT } from '../limits.js'
import type { PrewriteMutation } from '../percolator/api.js'
import { asInteger, asOptionalBytes, packRecord, unpackRecord } from '../percolator/codec/record.js'
import type { SharedCells } from '../store/shared-cells.js'
import type { Store } from '../store/store.js'
import { physicalMs, TIMESTAMP_MAX, type Timestamp } from '../timestamp.js'
import { nameOfBackfill } from './registration.js'
import { type SharedObserver as Registered, uncovered } from './rules/shared-cell.js'
import { notification } from './shared-riders.js'

const KEYS_AT_A_TIME = 128
export const COMMITS_AT_ONCE = 32
/** A server that has not gone on for so long is taken for dead, and another one goes on. */
const LEASE_MS = 10_000

export interface SharedBackfillSources {
  readonly store: Store
  readonly cells: SharedCells
  readonly resolver: LockResolver
  /** Commits a transaction of one row. */
  readonly commit: (mutationAt: (startTs: Timestamp) => PrewriteMutation) => Promise<Timestamp>
  readonly random: () => number
}

/** The progress of a backfill, which one server at a time makes. */
export interface SharedProgress {
  /** Of the observer. A name may be given to a new observer. */
  readonly id: Timestamp
  /** Every key up to here is done. */
  readonly after: Uint8Array | undefined
  /** Of the lease. */
  readonly untilMs: number
}

/** @param salt makes no two records equal. */
export function encodeProgress({ id, after, untilMs }: SharedProgress, salt: number): Buffer {
  return packRecord([id, after ?? null, untilMs, salt])
}

/** @throws CorruptRecord */
export function decodeProgress(bytes: Uint8Array): SharedProgress {
  const [id, after, untilMs] = unpackRecord(bytes, 'backfill', 3)
  return {
    id: asInteger(id, 'backfill'),
    after: asOptionalBytes(after, 'backfill'),
    untilMs: asInteger(untilMs, 'backfill'),
  }
}

/**
 * Notifies the keys of an observer's range that exist already, in steps, as long as this server has the lease of the backfill.
 * @param isHeld asked before each step.
 */
export async function backfillShared(
  sources: SharedBackfillSources,
  name: string,
  observer: Registered,
  isHeld: () => boolean,
): Promise<void> {
  const { store, cells, resolver, commit, random } = sources
  const { system } = store
  const record = nameOfBackfill(name)
  const progress = (after: Uint8Array | undefined, untilMs: number): Buffer =>
    encodeProgress({ id: observer.id, after, untilMs }, Math.floor(random() * 2 ** 48))
  let held = await system.get(record)
  if (held === undefined) return
  let { id, after, untilMs } = decodeProgress(held)
  if (id !== observer.id || untilMs > physicalMs(store.time.clock())) return
  for (let isWhole = false; !isWhole; ) {
    const isGoingOn = isHeld()
    const next = progress(after, isGoingOn ? physicalMs(store.time.clock()) + LEASE_MS : 0)
    if (!(await system.replace(record, held, next)) || !isGoingOn) return
    held = next
    const ts = await store.readTs()
    const reader = new SnapshotReader(store, resolver, ts, { lockWaitMs: LOCK_WAIT_MS_DEFAULT })
    const start = after === undefined ? observer.range.start : afterKey(after)
    const { pairs } = await reader.scan({ start, end: observer.range.end, limit: KEYS_AT_A_TIME, keyOnly: true })
    const keys = pairs.map(({ key }) => key)
    const looks = await cells.look(observer.id, keys, ts)
    const clean = looks.filter((cell) => uncovered(cell, observer, TIMESTAMP_MAX, ts) === undefined)
    for (let from = 0; from < clean.length; from += COMMITS_AT_ONCE)
      await Promise.all(
        clean.slice(from, from + COMMITS_AT_ONCE).map(({ key }) => {
          return commit((startTs) => notification({ id: observer.id, key }, startTs, 'backfill'))
        }),
      )
    after = keys.at(-1) ?? after
    isWhole = keys.length < KEYS_AT_A_TIME
  }
  // Whoever has begun it anew meanwhile has replaced the record.
  await system.replace(record, held, undefined)
}
