import { KvError } from '../../../../src/errors/kv-error.js'
import { DamagedRanges } from '../../../../src/store/leveldb/integrity/damaged-ranges.js'
import { CF_WRITE, lockKey, systemKey, versionRange } from '../../../../src/store/leveldb/records/keyspace.js'
import { holds, type Loss } from '../../../../src/store/leveldb/repair/loss.js'
import type { Store } from '../../../../src/store/store.js'
import type { Timestamp } from '../../../../src/timestamp.js'
import { text, utf8 } from '../../support.js'
import { ABSENT, LOCKED, type Model, observersIn, REFUSED } from './random-database.js'

export interface Difference {
  readonly key: string
  readonly ts: Timestamp
  readonly wanted: string
  readonly found: string
  readonly isPast: boolean
}

async function readAt(store: Store, key: string, ts: Timestamp): Promise<string> {
  try {
    const answer = await store.get({ key: utf8(key), ts })
    return answer.found ? text(answer.value) : ABSENT
  } catch (error) {
    if (error instanceof KvError && error.code === 'key_locked') return LOCKED
    if (error instanceof KvError && error.code === 'ts_below_safe_point') return REFUSED
    throw error
  }
}

/** Every key at every time at which its answer may be another. */
export async function differencesIn(store: Store, model: Model): Promise<Difference[]> {
  const differences: Difference[] = []
  const present = await store.tso(1)
  for (const key of model.keys)
    for (const ts of [...model.timesOf(key), present]) {
      const [wanted, found] = [model.read(key, ts), await readAt(store, key, ts)]
      if (found !== wanted) differences.push({ key, ts, wanted, found, isPast: ts < model.newestCommit(key) })
    }
  return differences
}

/** Whether a loss that was reported says of a read that it may be another. */
export function covers(loss: Loss, { key, isPast, found }: Difference): boolean {
  const { gte, lt } = versionRange(CF_WRITE, utf8(key))
  const range = new DamagedRanges([loss.range ?? {}])
  switch (loss.of) {
    case 'anything':
      return true
    case 'key':
      return loss.key !== undefined && utf8(key).equals(loss.key)
    case 'past':
      return loss.range === undefined ? found === REFUSED : isPast && range.meets(gte, lt)
    case 'versions':
      return range.meets(gte, lt)
    case 'locks':
      return range.meets(lockKey(utf8(key)))
    default:
      return false
  }
}

/** The records of observers and of their cells that are not as they were, and are not among the losses. */
export async function unreportedCells(store: Store, model: Model, losses: readonly Loss[]): Promise<string[]> {
  const found = await observersIn(store)
  const names = new Set([...model.system.keys(), ...found.keys()])
  const isReported = (stored: Buffer): boolean =>
    losses.some(({ of, range }) => of === 'anything' || (of === 'system' && holds(range ?? {}, stored)))
  return [...names].filter((name) => found.get(name) !== model.system.get(name) && !isReported(systemKey(name)))
}
