import { afterKey } from '../bytes/key-range.js'
import { keyText } from '../bytes/key-text.js'
import type { Attached } from '../coordinator/attaches.js'
import type { Coordinator } from '../coordinator/coordinator.js'
import { locksOf } from '../coordinator/lock-resolver.js'
import { Undetermined } from '../coordinator/undetermined.js'
import { invalid, isKvError } from '../errors/kv-error.js'
import { ATTACHED_MAX, type Limits } from '../limits.js'
import type { PrewriteMutation } from '../percolator/api.js'
import {
  attachedEnd,
  attachedKey,
  attachedPrefix,
  fenceOfAttached,
  keyOfAttached,
} from '../percolator/codec/attached-key.js'
import type { LeaseGuard } from '../percolator/commit-effects.js'
import type { Store } from '../store/store.js'
import { TIMESTAMP_MAX, type Timestamp } from '../timestamp.js'

/** Keys per read. */
const KEYS_AT_A_TIME = 512
/** Shortest interval between two counts of the keys of a grant. */
const COUNT_AGAIN_MS = 1000
/** How long a count waits for a lock of another server. */
const LOCK_WAIT_MS = 1000

const NOTHING = new Uint8Array()
const MEETS_OTHERS = ['write_conflict', 'txn_lock_not_found', 'ts_below_safe_point'] as const

/** The number of keys attached to one grant. */
interface Count {
  /** Upper bound, including keys of unfinished commits. */
  atMost: number
  /** Keys of unfinished commits. */
  coming: number
  countedAtMs: number
  /** Present while the keys are counted again. */
  counting: Promise<void> | undefined
  /** Transactions that attach keys now: the count is kept until they end. */
  users: number
}

/**
 * Keys that are deleted when a lease ends. An attached version has the fence of the grant (`WriteRecord.leaseFence`), and the
 * transaction that attaches it puts a row, by which the end of the lease finds the key. The row may outlive the attachment.
 *
 * No attached key is missed. The end begins when no transaction can commit under the fence any more. A transaction that has
 * committed under it has its row by then, or a lock in its place: the end reads the rows at a later timestamp, so it finds the
 * row or meets the lock.
 */
export class AttachedKeys {
  readonly #store: Store
  readonly #coordinator: Coordinator
  /** By fence, for grants whose keys this process has counted. The oldest count without users is dropped first. */
  readonly #counts = new Map<Timestamp, Count>()
  /** By fence: a key that was locked at the last attempt to end the grant. */
  readonly #locked = new Map<Timestamp, Uint8Array>()
  readonly #leasesMax: number

  constructor(store: Store, coordinator: Coordinator, { leasesMax }: Pick<Limits, 'leasesMax'>) {
    this.#store = store
    this.#coordinator = coordinator
    this.#leasesMax = leasesMax
  }

  // ---- Attaching

  /** See `Attaches`. */
  async attach(mutations: readonly PrewriteMutation[], leases: readonly LeaseGuard[]): Promise<Attached | undefined> {
    const added = new Map<Timestamp, Uint8Array[]>()
    for (const { key, leaseFence = 0 } of mutations) {
      if (leaseFence === 0) continue
      const row = attachedKey(leaseFence, key)
      const rows = added.get(leaseFence)
      if (rows === undefined) added.set(leaseFence, [row])
      else rows.push(row)
    }
    if (added.size === 0) return undefined
    const coming: (() => void)[] = []
    const done = (): void => {
      for (const end of coming.splice(0)) end()
    }
    try {
      for (const [fence, rows] of added) {
        const index = leases.findIndex((guard) => guard.fence === fence)
        const guard = leases[index]
        if (guard === undefined) continue // The prewrite is refused.
        await this.#store.leases.attaches({ index, ...guard })
        coming.push(await this.#reserve(fence, rows))
      }
    } catch (error) {
      done()
      throw error
    }
    return { rows: [...added.values()].flat().map((key) => ({ op: 'put', key, value: NOTHING })), done }
  }

  /** @returns a function to be called when the rows are written, or will not be. @throws KvError `invalid_argument` */
  async #reserve(fence: Timestamp, rows: readonly Uint8Array[]): Promise<() => void> {
    const count = this.#countOf(fence)
    let more = 0
    const done = (): void => {
      count.users--
      count.coming -= more
    }
    count.users++
    try {
      await count.counting
      more = await this.#add(fence, rows, count)
    } catch (error) {
      done()
      throw error
    }
    return done
  }

  /** @returns how many of the keys are new. @throws KvError `invalid_argument` */
  async #add(fence: Timestamp, rows: readonly Uint8Array[], count: Count): Promise<number> {
    let more = rows.length
    const isFull = (): boolean => count.atMost + more > ATTACHED_MAX
    if (isFull()) more -= await this.#standing(rows) // Existing rows are counted already.
    if (isFull()) await this.#countAgain(fence, count)
    if (isFull())
      throw invalid('lease', `more than ${ATTACHED_MAX} keys would be attached to the lease of the fence ${fence}`)
    count.atMost += more
    count.coming += more
    return more
  }

  /** The number of these rows that exist. */
  async #standing(rows: readonly Uint8Array[]): Promise<number> {
    const read = () => this.#store.batchGet({ keys: rows, ts: TIMESTAMP_MAX, keyOnly: true })
    return (await this.#coordinator.resolver.resolving(LOCK_WAIT_MS, read)).pairs.length
  }

  #countOf(fence: Timestamp): Count {
    const known = this.#counts.get(fence)
    if (known !== undefined) return known
    if (this.#counts.size >= this.#leasesMax)
      for (const [oldest, { users }] of this.#counts) if (users === 0 && this.#counts.delete(oldest)) break
    const count: Count = { atMost: 0, coming: 0, countedAtMs: Number.NEGATIVE_INFINITY, counting: undefined, users: 0 }
    this.#counts.set(fence, count)
    count.counting = this.#firstCount(fence, count).finally(() => {
      count.counting = undefined
    })
    return count
  }

  async #firstCount(fence: Timestamp, count: Count): Promise<void> {
    try {
      for await (const keys of this.#keysOf(fence, LOCK_WAIT_MS)) count.atMost += keys.length
    } catch (error) {
      this.#counts.delete(fence)
      throw error
    }
  }

  /**
   * Counts the keys attached to the grant, unless that was done lately, and removes the rows of keys that are attached no more.
   */
  async #countAgain(fence: Timestamp, count: Count): Promise<void> {
    if (count.counting === undefined) {
      if (performance.now() - count.countedAtMs < COUNT_AGAIN_MS) return
      count.counting = this.#recount(fence, count).finally(() => {
        count.counting = undefined
      })
    }
    await count.counting
  }

  async #recount(fence: Timestamp, count: Count): Promise<void> {
    let attached = 0
    const stale: Uint8Array[] = []
    for await (const keys of this.#keysOf(fence, LOCK_WAIT_MS)) {
      const detached = await this.#detached(fence, keys)
      attached += keys.length - detached.length
      stale.push(...detached)
    }
    count.atMost = attached + count.coming
    count.countedAtMs = performance.now()
    // In the background: the caller may hold latches that the deletion needs.
    if (stale.length > 0) this.#coordinator.inBackground(this.#delete(fence, stale, false))
  }

  /**
   * The keys that are not attached to the grant. Locked keys are left out: their state is unknown, and resolving their locks
   * takes latches.
   */
  async #detached(fence: Timestamp, keys: readonly Uint8Array[]): Promise<readonly Uint8Array[]> {
    try {
      const attached = await this.#attached(fence, keys, TIMESTAMP_MAX)
      return keys.filter((key) => !attached.has(keyText(key)))
    } catch (error) {
      if (!isKvError(error, 'key_locked')) throw error
      const locked = new Set(locksOf(error).map(({ key }) => keyText(key)))
      const others = keys.filter((key) => !locked.has(keyText(key)))
      return others.length === 0 ? [] : this.#detached(fence, others)
    }
  }

  /** Texts of the keys whose version at `ts` is attached to the grant. @throws KvError `key_locked` */
  async #attached(fence: Timestamp, keys: readonly Uint8Array[], ts: Timestamp): Promise<ReadonlySet<string>> {
    const { pairs } = await this.#store.batchGet({ keys, ts, keyOnly: true })
    return new Set(pairs.flatMap(({ key, leaseFence }) => (leaseFence === fence ? [keyText(key)] : [])))
  }

  // ---- Ending

  /**
   * The fences of all grants that may have attached keys. Reads the latest versions: a read as of now, at each start of a
   * server, would raise the min_commit_ts of all coming commits.
   */
  async fences(): Promise<ReadonlySet<Timestamp>> {
    const fences = new Set<Timestamp>()
    for (let start = attachedPrefix(0); ; ) {
      const [first] = await this.#page(start, attachedEnd(), 1, TIMESTAMP_MAX, LOCK_WAIT_MS)
      if (first === undefined) return fences
      const fence = fenceOfAttached(first)
      fences.add(fence)
      start = attachedEnd(fence)
    }
  }

  /**
   * Deletes every key whose present version is attached to the grant, with its row, in one transaction. Tries once and waits for
   * no lock. The fence must not be in force any more.
   * @returns false when other transactions have changed or locked some of the keys.
   */
  async end(fence: Timestamp): Promise<boolean> {
    // Looking at the key that was locked last costs less than trying with all.
    const locked = this.#locked.get(fence)
    if (locked !== undefined && (await this.#isLocked(locked))) return false
    this.#locked.delete(fence)
    try {
      await this.finish(fence, 0)
      return true
    } catch (error) {
      if (isKvError(error, 'key_locked')) this.#noteLocked(fence, locksOf(error)[0]?.key)
      else if (!MEETS_OTHERS.some((code) => isKvError(error, code))) throw error
      return false
    }
  }

  #noteLocked(fence: Timestamp, key: Uint8Array | undefined): void {
    if (this.#locked.size >= this.#leasesMax) this.#locked.clear() // Another server may have ended them.
    if (key !== undefined) this.#locked.set(fence, key)
  }

  /** As `end`, but waits for locks. @param lockWaitMs longest wait. @param stop ends the wait. */
  async finish(fence: Timestamp, lockWaitMs: number, stop?: AbortSignal): Promise<void> {
    const end = async (): Promise<void> => {
      const keys: Uint8Array[] = []
      for await (const page of this.#keysOf(fence, 0)) keys.push(...page)
      if (keys.length > 0) await this.#delete(fence, keys, true)
    }
    await this.#coordinator.resolver.resolving(lockWaitMs, end, stop)
    this.#counts.delete(fence)
  }

  /**
   * Deletes in one transaction under the latches of its keys: a key that is written all the time would otherwise conflict for
   * ever.
   * @param areOver also deletes the keys that are attached. Otherwise their rows stay.
   */
  async #delete(fence: Timestamp, keys: readonly Uint8Array[], areOver: boolean): Promise<void> {
    const written = keys.flatMap((key) => [keyText(key), keyText(attachedKey(fence, key))])
    const claim = { written, read: [], isAlone: false }
    await this.#store.exclusive(claim, async (prewrite) => {
      const txn = await this.#coordinator.begin(ONCE)
      for (let at = 0; at < keys.length; at += KEYS_AT_A_TIME) {
        const some = keys.slice(at, at + KEYS_AT_A_TIME)
        const attached = await this.#attached(fence, some, txn.startTs)
        for (const key of some) {
          const isAttached = attached.has(keyText(key))
          if (isAttached && areOver) await txn.delete(key)
          if (!isAttached || areOver) await txn.delete(attachedKey(fence, key))
        }
      }
      await txn.commit(prewrite).catch((error) => {
        throw error instanceof Undetermined ? error.cause : error // Inside `exclusive`, which translates engine errors.
      })
    })
  }

  /** Resolves the lock of the key if its transaction is over. */
  async #isLocked(key: Uint8Array): Promise<boolean> {
    const { locks } = await this.#store.scanLock({ start: key, end: afterKey(key), maxTs: TIMESTAMP_MAX })
    return !(await this.#coordinator.resolver.resolve(locks, this.#store.now()))
  }

  // ---- Looking

  /**
   * The first keys that are attached to the grant, in order. Locked ones count as attached.
   * @param mayAccess whether the caller may see the key. Default: all.
   */
  async list(
    fence: Timestamp,
    limit: number,
    mayAccess?: (key: Uint8Array) => boolean,
  ): Promise<{ readonly keys: readonly Uint8Array[]; readonly isCut: boolean }> {
    const found: Uint8Array[] = []
    for await (const keys of this.#keysOf(fence, LOCK_WAIT_MS)) {
      const detached = new Set((await this.#detached(fence, keys)).map(keyText))
      for (const key of keys) if (!detached.has(keyText(key)) && mayAccess?.(key) !== false) found.push(key)
      if (found.length > limit) break
    }
    return { keys: found.slice(0, limit), isCut: found.length > limit }
  }

  // ---- Rows

  /** Yields the keys that have rows, page by page. */
  async *#keysOf(fence: Timestamp, lockWaitMs: number): AsyncGenerator<readonly Uint8Array[], void> {
    const ts = await this.#store.readTs()
    const end = attachedEnd(fence)
    for (let start = attachedPrefix(fence); ; ) {
      const page = await this.#page(start, end, KEYS_AT_A_TIME, ts, lockWaitMs)
      const last = page.at(-1)
      if (last === undefined) return
      yield page.map(keyOfAttached)
      if (page.length < KEYS_AT_A_TIME) return
      start = afterKey(last)
    }
  }

  async #page(
    start: Uint8Array,
    end: Uint8Array,
    limit: number,
    ts: Timestamp,
    lockWaitMs: number,
  ): Promise<readonly Uint8Array[]> {
    const read = () => this.#store.scan({ start, end, limit, ts, keyOnly: true, isOfServer: true })
    const { pairs } = await this.#coordinator.resolver.resolving(lockWaitMs, read)
    return pairs.map(({ key }) => key)
  }
}

const ONCE = { mode: 'optimistic', isolation: 'snapshot', lockWaitMs: 0, isFirst: true } as const
