import type { Grant } from '../../access/grant.js'
import { keyText } from '../../bytes/key-text.js'
import { invalid, KvError } from '../../errors/kv-error.js'
import { printKey } from '../../errors/print-key.js'
import type { Limits } from '../../limits.js'
import { noSuchObserver, type Observer, requireInRange } from '../../percolator/observer.js'
import type { Riders } from '../../percolator/riders.js'
import type { Store } from '../../store/store.js'
import type { Decoded } from './decode.js'
import type { Riders as WireRiders } from './schemas/riders.js'

/** Where observers are known, and the present time. */
type Observing = Pick<Store, 'cells' | 'clock'>

/**
 * The riders of a body.
 * @param path of the object that has the fields `acks` and `notify`, for errors.
 * @returns undefined when there are none.
 * @throws KvError `invalid_argument` when one cell is acknowledged twice; `payload_too_large`; `forbidden` when the caller may
 *   not write.
 */
export function ridersOf(
  { acks = [], notify = [] }: Decoded<WireRiders>,
  grant: Grant,
  { requestKeysMax: limit }: Pick<Limits, 'requestKeysMax'>,
  path = '',
): Riders | undefined {
  const notified = notify.reduce((sum, { keys }) => sum + keys.length, 0)
  if (acks.length + notified === 0) return undefined
  if (notified > limit)
    throw new KvError('payload_too_large', `${path}notify has over ${limit} keys`, { field: `${path}notify`, limit })
  grant.requireWrite()
  const acked = new Set<string>()
  for (const [index, { observer, key }] of acks.entries()) {
    const cell = `${observer} ${keyText(key)}`
    if (acked.has(cell))
      throw invalid(`${path}acks[${index}]`, `${path}acks[${index}] acknowledges ${printKey(key)} for a second time`)
    acked.add(cell)
  }
  return { acks, notify }
}

/**
 * Refuses observers that the caller's token does not reach, as if they did not exist.
 * @throws KvError `not_found`
 */
export function requireReached({ acks = [], notify = [] }: Riders, grant: Grant, { cells }: Observing): void {
  if (!grant.isScoped) return
  for (const { observer: name } of [...acks, ...notify]) {
    const observer = cells.named(name)
    if (observer !== undefined && !grant.reachesRange(observer.range)) throw noSuchObserver(name)
  }
}

/**
 * Refuses riders before anything is done with their transaction: when the store refuses them, an open transaction is over. Must
 * not be asked of the repeat of a transaction that may have committed, because its observers may be gone.
 * @throws KvError `not_found`; `invalid_argument` for a key outside of the observer's range, or a fence in the future.
 */
export function requireObserved({ acks = [], notify = [] }: Riders, store: Observing): void {
  const clock = store.clock()
  for (const [index, { observer, key, fence }] of acks.entries()) {
    requireInRange(observerNamed(observer, store), key, () => `acks[${index}].key`)
    if (fence > clock) throw invalid(`acks[${index}].fence`, `acks[${index}].fence is in the future`)
  }
  for (const [index, { observer: name, keys }] of notify.entries()) {
    const observer = observerNamed(name, store)
    for (const [at, key] of keys.entries()) requireInRange(observer, key, () => `notify[${index}].keys[${at}]`)
  }
}

/** @throws KvError `not_found` */
function observerNamed(name: string, { cells }: Observing): Observer {
  const observer = cells.named(name)
  if (observer === undefined) throw noSuchObserver(name)
  return observer
}
