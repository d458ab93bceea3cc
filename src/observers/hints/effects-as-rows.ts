import { groupBy } from '../../bytes/group-by.js'
import { keyText } from '../../bytes/key-text.js'
import type { EffectRows, EffectRowsRequest } from '../../coordinator/effect-rows.js'
import { isKvError, KvError } from '../../errors/kv-error.js'
import { printKey } from '../../errors/print-key.js'
import type { PrewriteMutation } from '../../percolator/api.js'
import { keysLocked, startTsTaken, withEntries, writeConflict } from '../../percolator/errors.js'
import type { HintedCells } from '../../store/hinted-cells.js'
import type { Store } from '../../store/store.js'
import { TIMESTAMP_MAX, type Timestamp } from '../../timestamp.js'
import { acknowledge } from '../rules/acknowledge.js'
import { type AskedAck, askedAcks, askedNotifications } from '../rules/asked-effects.js'
import type { StoredNotification } from '../rules/cell.js'
import {
  ackedCell,
  type CellName,
  encodeAckTs,
  encodeNotified,
  type Notified,
  notifiedCell,
  notifiedKey,
} from '../rules/codec/cell-key.js'
import { type HintedCell, isStill, locksBelow, uncovered } from '../rules/hinted-cell.js'
import type { RegisteredObserver } from '../rules/observer.js'
import { forgetClean, unpark } from './cleaning.js'

const RELEASED_AT_A_TIME = 64
const LOOKS_MAX = 10

/** A running observer as seen by commit effects. */
interface AckedObserver {
  readonly observer: RegisteredObserver
  conflicts: number
  /** Called when a run has committed. */
  acknowledged(key: Uint8Array, fence: Timestamp): void
  /** Called when the claim of a committed run has been removed. */
  takenBack(key: Uint8Array, fence: Timestamp): void
}

export interface EffectSources {
  readonly store: Store
  readonly cells: HintedCells
  readonly named: (name: string) => AckedObserver
}

interface AckToMake extends AskedAck {
  readonly acked: AckedObserver
  readonly cell: HintedCell
}

/**
 * Turns the acknowledgements and notifications of a transaction into rows of it. Two runs on one cell put the same row, so
 * Percolator's conflict check lets at most one of them commit on what both have seen, like the acknowledgement column of the
 * paper.
 */
export async function effectsAsRows(sources: EffectSources, request: EffectRowsRequest): Promise<EffectRows> {
  const { startTs, mutations, mayRepeat = false } = request
  const written = new Set(mutations.map(({ key }) => keyText(key)))
  const toMake = await lookedAt(sources, request, written)
  const rows = new Map<string, PrewriteMutation>()
  const putRow = (key: Uint8Array, value: Uint8Array): void => {
    rows.set(keyText(key), { op: 'put', key, value })
  }
  let markDepth = 0
  let committedAt: Timestamp | undefined
  for (const one of toMake) {
    const { cell, acked, seen, effect } = one
    const { observer } = acked
    const all = uncovered(cell, observer, TIMESTAMP_MAX, sources.store.time.clock())
    const covered = uncovered(cell, observer, seen)
    const outcome = acknowledge(
      { effect, seen, startTs, commitTs: startTs },
      {
        notification: covered ?? all,
        ack: cell.ack,
        safePoint: sources.store.safePoint,
        newestFence: cell.claim?.fence ?? 0,
        observedSince: observer.sinceTs,
        newestSeen: () => 0,
      },
    )
    if (outcome.kind === 'repeat' && mayRepeat) {
      committedAt = outcome.commitTs
      continue
    }
    if (outcome.kind === 'repeat')
      throw withEntries([startTsTaken(effect.key, { startTs, primary: effect.key }, outcome.commitTs)])
    if (outcome.kind === 'refused') {
      acked.conflicts++
      throw withEntries([outcome.error])
    }
    markDepth = Math.max(markDepth, 1 + (covered?.depth ?? 0))
    putRow(cell.ackKey, encodeAckTs(seen))
    // The run's own write would hide a newer change that it has not read; leaves a notification for it.
    if (all !== undefined && all.changeTs > seen && written.has(keyText(effect.key)))
      putRow(notifiedKey({ id: observer.id, key: effect.key }, startTs), encodeNotified(all))
  }
  const notified: Notified = { kind: 'notified', depth: markDepth }
  for (const { observer, key } of askedNotifications(request.commitEffects, (name) => sources.named(name).observer)) {
    const row = notifiedKey({ id: observer.id, key }, startTs)
    // The first row of a transaction that only notifies is its primary.
    const isKept = mutations.length === 0 && rows.size === 0
    if (!rows.has(keyText(row))) putRow(row, encodeNotified({ ...notified, isKept }))
  }
  return {
    committedAt,
    mutations: [...rows.values()],
    markDepth,
    refusal: (error) => {
      const conflict = ackConflict(error, toMake, startTs)
      if (conflict !== undefined) {
        conflict.acked.conflicts++
        return conflict.error
      }
      if (isKvError(error, 'write_conflict'))
        for (const acked of new Set(toMake.map(({ acked }) => acked))) acked.conflicts++
      return ofUsersKey(error)
    },
    committed: async () => {
      for (const { acked, effect } of toMake) acked.acknowledged(effect.key, effect.fence)
      try {
        await releaseAll(sources, toMake, startTs)
      } finally {
        for (const { acked, effect } of toMake) acked.takenBack(effect.key, effect.fence)
      }
    },
  }
}

/** A transaction that notifies one key and does nothing else. */
export function notification(
  { id, key }: CellName,
  startTs: Timestamp,
  kind: StoredNotification['kind'],
): PrewriteMutation {
  return { op: 'put', key: notifiedKey({ id, key }, startTs), value: encodeNotified({ kind, depth: 0 }) }
}

/** Reads the cells again until no lock hides a change at or below `seen`, or another acknowledgement. */
async function lookedAt(
  sources: EffectSources,
  { commitEffects, startTs, resolver, lockWaitMs, signal }: EffectRowsRequest,
  written: ReadonlySet<string>,
): Promise<AckToMake[]> {
  const { cells, store } = sources
  const asked = askedAcks(commitEffects, startTs, store.time.clock(), (name) => sources.named(name).observer).map(
    (ack): Omit<AckToMake, 'cell'> => ({ ...ack, acked: sources.named(ack.effect.observer) }),
  )
  if (asked.length === 0) return []
  const groups = [...groupBy(asked, ({ observer, seen }) => `${observer.id} ${seen}`).values()]
  const look = (): Promise<AckToMake[]> =>
    resolver.resolving(
      lockWaitMs,
      async () => {
        const looks = await Promise.all(
          groups.map(async (some) => {
            const { observer, seen } = some[0] as AskedAck
            const keys = some.map(({ effect }) => effect.key)
            const found = await cells.look(observer.id, keys, seen)
            return some.map((ack, i): AckToMake => ({ ...ack, cell: found[i] as HintedCell }))
          }),
        )
        const toMake = looks.flat()
        // The transaction's own write would hide a change below its start_ts, without a conflict.
        const locks = toMake.flatMap(({ cell, seen }) =>
          locksBelow(cell, written.has(keyText(cell.key)) ? startTs : seen, startTs),
        )
        if (locks.length > 0) throw keysLocked(locks)
        return toMake
      },
      signal,
    )
  for (let left = LOOKS_MAX; ; left--)
    try {
      return await look()
    } catch (error) {
      // The notification was committed and covered while its lock was being resolved.
      if (left === 0 || !isKvError(error, 'txn_lock_not_found')) throw error
    }
}

/**
 * Removes the claims of committed runs, and the rows that they have covered. After a failure, the next server that finds the
 * hints does it.
 */
async function releaseAll(
  { cells, store }: EffectSources,
  acks: readonly AckToMake[],
  startTs: Timestamp,
): Promise<void> {
  for (const [id, some] of groupBy(acks, ({ observer }) => observer.id))
    for (let from = 0; from < some.length; from += RELEASED_AT_A_TIME) {
      const part = some.slice(from, from + RELEASED_AT_A_TIME)
      const covered = part.flatMap(({ cell, seen }) =>
        cell.notified.filter(
          ({ committed, lock }) => !lock && committed && !committed.isKept && committed.commitTs <= seen,
        ),
      )
      await cells.removeNotified(covered.map(({ key }) => key))
      const looks = await cells.look(
        id,
        part.map(({ effect }) => effect.key),
        startTs,
      )
      await Promise.all(part.map((ack, i) => release(cells, ack, looks[i] as HintedCell, store.time.clock())))
    }
}

async function release(cells: HintedCells, ack: AckToMake, present: HintedCell, now: Timestamp): Promise<void> {
  const { effect, cell } = ack
  const { observer } = ack.acked
  const { id } = observer
  const { key, hint, claim, failure } = cell
  const left = uncovered(present, observer, TIMESTAMP_MAX, now)
  if (failure !== undefined && left !== undefined)
    await unpark(cells, id, cell, { commitTs: left.changeTs, depth: left.depth })
  else if (failure !== undefined) await cells.replaceFailure(id, cell, undefined)
  if (isStill(present) && left === undefined) await forgetClean(cells, id, { key, hint, claim }, present, now)
  else if (claim !== undefined && claim.fence !== 0 && claim.fence <= effect.fence)
    await cells.claim(id, { key, claim }, undefined)
}

/** Maps an error about an internal row to the user's key: clients do not know the rows of commit effects. */
function ofUsersKey(error: unknown): unknown {
  if (!isKvError(error, 'txn_lock_not_found') && !isKvError(error, 'write_conflict')) return error
  const { key } = error.fields
  const cell = key && (ackedCell(key) ?? notifiedCell(key))
  if (cell === undefined) return error
  const text = `the transaction at ${error.fields.startTs} was rolled back by others, who found its locks too old`
  return new KvError(error.code, text, { ...error.fields, key: cell.key })
}

/** Another run has committed first, between the look and the lock. */
function ackConflict(
  error: unknown,
  acks: readonly AckToMake[],
  startTs: Timestamp,
): { readonly error: KvError; readonly acked: AckedObserver } | undefined {
  if (!isKvError(error, 'write_conflict') || error.fields.key === undefined) return undefined
  const conflicting = keyText(error.fields.key)
  const ack = acks.find(({ cell }) => keyText(cell.ackKey) === conflicting)
  if (ack === undefined) return undefined
  const { effect, acked } = ack
  const { conflictStartTs, conflictCommitTs, reason } = error.fields
  if (reason === 'self_rolled_back') {
    const { key } = effect
    const refused = writeConflict(key, { startTs, primary: key }, { startTs, commitTs: 0 }, reason, error.message)
    return { error: withEntries([refused]), acked }
  }
  const text = `the notification of ${printKey(effect.key)} for the observer ${effect.observer} was acknowledged at ${conflictCommitTs}, after the claim`
  const fields = { key: effect.key, startTs, conflictStartTs, conflictCommitTs, primary: effect.key }
  const named = { ...fields, reason: 'acknowledged' as const, observer: effect.observer, retryable: true }
  return { error: withEntries([new KvError('write_conflict', text, named)]), acked }
}
