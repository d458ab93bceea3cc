import { inParts } from '../coordinator/in-parts.js'
import { physicalMs, TIMESTAMP_MAX } from '../timestamp.js'
import { existingKeys } from './existing-keys.js'
import { decodeBackfill, encodeBackfill, nameOfBackfill } from './registration.js'
import type { RegisteredObserver } from './rules/observer.js'
import { uncovered } from './rules/shared-cell.js'
import { COMMITS_AT_ONCE, type HintedObserverSources } from './shared-observer.js'
import { notification } from './shared-riders.js'

const KEYS_AT_A_TIME = 128
/** A server that has not gone on for so long is taken for dead, and another one goes on. */
const LEASE_MS = 10_000

/**
 * Notifies the keys of an observer's range that exist already, in steps, as long as this server has the lease of the backfill.
 * @param isHeld asked before each step.
 * @returns false when it is complete, or gone.
 */
export async function leasedBackfill(
  { store, cells, resolver, commit, random }: HintedObserverSources,
  observer: RegisteredObserver,
  isHeld: () => boolean,
): Promise<boolean> {
  const { system, time } = store
  const { id, range } = observer
  const record = nameOfBackfill(observer.name)
  let held = await system.get(record)
  const progress = held && decodeBackfill(held)
  if (progress?.id !== id) return false
  let { after } = progress
  if (progress.untilMs > physicalMs(time.clock())) return true
  for (let isWhole = false; !isWhole; ) {
    const isGoingOn = isHeld()
    const untilMs = isGoingOn ? physicalMs(time.clock()) + LEASE_MS : 0
    const next = encodeBackfill({ id, after, untilMs }, random)
    if (!(await system.replace(record, held, next)) || !isGoingOn) return true
    held = next
    const { keys, ts } = await existingKeys(store, resolver, { range, after, limit: KEYS_AT_A_TIME })
    const looks = await cells.look(id, keys, ts)
    const clean = looks.filter((cell) => uncovered(cell, observer, TIMESTAMP_MAX, ts) === undefined)
    for (const some of inParts(clean, COMMITS_AT_ONCE))
      await Promise.all(some.map(({ key }) => commit((startTs) => notification({ id, key }, startTs, 'backfill'))))
    after = keys.at(-1) ?? after
    isWhole = keys.length < KEYS_AT_A_TIME
  }
  // Whoever has begun it anew meanwhile has replaced the record.
  return !(await system.replace(record, held, undefined))
}
