import type { Grant } from '../../access/grant.js'
import type { KeyRange } from '../../bytes/key-range.js'
import { keyText } from '../../bytes/key-text.js'
import { noSuchConsumer, WEBHOOK_CONSUMERS } from '../../changes/rules/consumer.js'
import type { Database } from '../../database/database.js'
import { invalid, KvError } from '../../errors/kv-error.js'
import { printKey } from '../../errors/print-key.js'
import type { Limits } from '../../limits.js'
import { noSuchObserver, requireInRange } from '../../observers/rules/observer.js'
import type { CommitEffects, LeaseGuard } from '../../percolator/commit-effects.js'
import type { Timestamp } from '../../timestamp.js'
import type { Decoded } from './decode.js'
import type { Riders as WireRiders } from './schemas/riders.js'

/** The commit effects of a body, and the leases among its checks. */
type WireEffects = Omit<Decoded<WireRiders>, 'leases'> & { readonly leases?: readonly LeaseGuard[] | undefined }

/** The registry of observers and consumers, and the present time. */
type Observing = Pick<Database, 'store' | 'changes'>

/**
 * @param path of the object that has the fields of commit effects, for errors.
 * @returns undefined when there are none.
 * @throws KvError `invalid_argument` when one cell or consumer is acknowledged twice; `payload_too_large`; `forbidden` when the
 *   caller may not write, or its token does not cover a lease.
 */
export function commitEffectsOf(
  { acks = [], notify = [], positions = [], leases = [] }: WireEffects,
  grant: Grant,
  { requestKeysMax: limit }: Pick<Limits, 'requestKeysMax'>,
  path = '',
): CommitEffects | undefined {
  const notified = notify.reduce((sum, { keys }) => sum + keys.length, 0)
  if (acks.length + notified + positions.length + leases.length === 0) return undefined
  if (notified > limit)
    throw new KvError('payload_too_large', `${path}notify has over ${limit} keys`, { field: `${path}notify`, limit })
  if (acks.length + notified + positions.length > 0) grant.requireWrite()
  const acked = new Set<string>()
  for (const [index, { observer, key }] of acks.entries()) {
    const cell = `${observer} ${keyText(key)}`
    if (acked.has(cell))
      throw invalid(`${path}acks[${index}]`, `${path}acks[${index}] acknowledges ${printKey(key)} for a second time`)
    acked.add(cell)
  }
  const consumers = new Set<string>()
  for (const [index, { consumer, from, ts }] of positions.entries()) {
    const field = `${path}positions[${index}]`
    if (consumers.has(consumer)) throw invalid(field, `${field} names the consumer ${consumer} for a second time`)
    if (from > ts) throw invalid(`${field}.from`, `${field}.from is above ts: a position never falls`)
    consumers.add(consumer)
  }
  for (const [place, { lease, index }] of leases.entries())
    grant.requireKey(
      Buffer.from(lease),
      index === undefined ? `${path}leases[${place}].lease` : `checks[${index}].lease`,
    )
  return leases.length === 0 ? { acks, notify, positions } : { acks, notify, positions, leases }
}

export function leaseChecksOf(checks: readonly { readonly lease: string; readonly fence: number }[]): LeaseGuard[] {
  return checks.map(({ lease, fence }, index) => ({ lease, fence, index }))
}

/**
 * Reads observers and consumers that other servers may have registered, and the present ranges of consumers where access depends
 * on them. @returns undefined when all are known.
 */
export function refreshNamed(
  { acks = [], notify = [], positions = [] }: CommitEffects,
  { isScoped }: Grant,
  { observers, changes }: Pick<Database, 'observers' | 'changes'>,
): undefined | Promise<unknown> {
  const { consumers } = changes
  const names = [...acks, ...notify].map(({ observer }) => observer)
  const known = names.length === 0 ? undefined : observers.refreshIfUnknown(names)
  const unknown = positions.filter(({ consumer }) => isScoped || consumers.rangeOf(consumer) === undefined)
  const reading = [known, ...unknown.map(({ consumer }) => consumers.refresh(consumer))]
  return reading.every((one) => one === undefined) ? undefined : Promise.all(reading)
}

/**
 * Refuses observers and consumers that the caller's token does not cover, as if they did not exist.
 * @throws KvError `not_found`
 */
export function requireAccess(commitEffects: CommitEffects, grant: Grant, { store, changes }: Observing): void {
  if (!grant.isScoped) return
  const { acks = [], notify = [], positions = [] } = commitEffects
  const { observed } = store
  for (const { observer: name } of [...acks, ...notify]) {
    const observer = observed.named(name)
    if (observer !== undefined && !grant.mayAccessRange(observer.range)) throw noSuchObserver(name)
  }
  for (const { consumer } of positions) {
    const range = changes.consumers.rangeOf(consumer)
    if (range !== undefined && !mayUseConsumer(grant, consumer, range)) throw noSuchConsumer(consumer)
  }
}

export function mayUseConsumer(grant: Grant, name: string, range: KeyRange): boolean {
  return grant.mayAccessRange(range) && !(grant.isScoped && name.startsWith(WEBHOOK_CONSUMERS))
}

/**
 * Refuses commit effects before the transaction does anything: a refusal by the store would end an open transaction. Must not be
 * called for the repetition of a transaction that may have committed, because its observers may be gone.
 * @returns undefined when all is known in this turn of the event loop.
 * @throws KvError `not_found`; `invalid_argument` for a key outside of the observer's range, or a fence or position in the
 *   future.
 */
export function requireObserved(
  commitEffects: CommitEffects,
  { store, changes }: Observing,
): undefined | Promise<void> {
  const { acks = [], notify = [], positions = [] } = commitEffects
  const { observed } = store
  const clock = store.time.clock()
  for (const [index, { observer, key, fence }] of acks.entries()) {
    requireInRange(observed.required(observer), key, () => `acks[${index}].key`)
    if (fence > clock) throw invalid(`acks[${index}].fence`, `acks[${index}].fence is in the future`)
  }
  for (const [index, { observer: name, keys }] of notify.entries()) {
    const observer = observed.required(name)
    for (const [at, key] of keys.entries()) requireInRange(observer, key, () => `notify[${index}].keys[${at}]`)
  }
  for (const { consumer } of positions)
    if (changes.consumers.rangeOf(consumer) === undefined) throw noSuchConsumer(consumer)
  const moved = positions.filter(({ from, ts }) => ts > from)
  if (moved.length === 0) return undefined
  const requirePassed = (resolved: Timestamp): undefined => {
    const index = positions.findIndex(({ from, ts }) => ts > from && ts > resolved)
    if (index !== -1)
      throw invalid(`positions[${index}].ts`, `positions[${index}].ts is above resolved_ts, in the future`)
  }
  const resolved = store.log.resolve(Math.max(...moved.map(({ ts }) => ts)))
  return resolved instanceof Promise ? resolved.then(requirePassed) : requirePassed(resolved)
}
