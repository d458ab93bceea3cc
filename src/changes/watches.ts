import { keyText } from '../bytes/key-text.js'
import { MinHeap, type Ranked } from '../bytes/min-heap.js'
import { isKvError } from '../errors/kv-error.js'
import type { Awaitable } from '../event-loop/after.js'
import { signalOf } from '../event-loop/lazy-signal.js'
import { onAbort } from '../event-loop/on-abort.js'
import { sleep } from '../event-loop/sleep.js'
import { TimeSlicer } from '../event-loop/time-slicer.js'
import type { GetAnswer, GetRequest } from '../percolator/api.js'
import type { LoggedChange, RangeChange } from '../percolator/change.js'
import { expiryTs } from '../percolator/write.js'
import type { Store } from '../store/store.js'
import { physicalMs, type Timestamp } from '../timestamp.js'
import type { KeyState, WatchRequest } from './rules/changes-api.js'

/** `full`: show no more until `Watcher.resume`. `later`: the state was not taken, and is read again at `Watcher.resume`. */
export type Taken = 'taken' | 'full' | 'later'

type WatchedStore = Pick<Store, 'watchKeys' | 'time'>

/** Must not throw. */
export interface WatchListener {
  /** The present state of the key: once at first, then after changes. States in between are skipped. */
  show(state: KeyState): Taken
  /** The key cannot be read any more, and the watcher is closed. @param error undefined: the database is closing. */
  ended(error: unknown): void
}

/** Concurrent reads that wait for the disk. As many locked keys are tried again at a time. */
const READS_MAX = 64
/** Longest interval between two looks at the clock while versions of watched keys expire. */
const EXPIRY_LOOK_MS = 1000
/** Interval at which locked keys are tried again. */
const LOCKED_MS = 100
/** Marks a watcher that must be shown a state, whatever it has seen. */
const UNSEEN: Timestamp = Number.POSITIVE_INFINITY
const FRESH: Timestamp = 0

/** A key and its watchers. One read serves all of them. Ranked by when its version expires. */
class WatchedKey implements Ranked {
  rank = 0
  place = -1
  readonly watchers = new Set<Watcher>()
  /** Timestamp of the newest removal by `delete_range`. */
  removedTs: Timestamp = 0

  constructor(
    /** The bytes as text: a Buffer may keep a whole pool of others in memory. */
    readonly text: string,
  ) {}

  get key(): Buffer {
    return Buffer.from(this.text, 'latin1')
  }
}

/** One watch of a key. It keeps one timestamp and no state. */
export class Watcher {
  #seenTs: Timestamp | undefined
  #isSeenAbsent = false
  /** The newest change that was not shown, or `UNSEEN`. */
  #staleTs: Timestamp = UNSEEN
  #takes = true
  #isOpen = true

  /** @internal */
  constructor(
    readonly watches: Watches,
    readonly watched: WatchedKey,
    readonly listener: WatchListener,
    seenTs: Timestamp | undefined,
  ) {
    this.#seenTs = seenTs
  }

  get isDue(): boolean {
    return this.#isOpen && this.#takes && this.#staleTs !== FRESH
  }

  /** Ignored for a change at or below what was shown. */
  changed(ts: Timestamp): void {
    if (ts > this.#staleTs && ts > (this.#seenTs ?? FRESH)) this.#staleTs = ts
  }

  /** Changes from now on make the watcher due again. */
  beginRead(): void {
    this.#staleTs = FRESH
  }

  show(state: KeyState): void {
    if (!this.#isOpen) return
    if (this.#staleTs <= state.commitTs) this.#staleTs = FRESH // The read has seen it.
    const isSame = this.#seenTs === state.commitTs || (this.#isSeenAbsent && !state.found)
    const taken = isSame ? 'taken' : this.listener.show(state)
    if (taken === 'later') this.#staleTs = UNSEEN
    else {
      this.#seenTs = state.commitTs
      this.#isSeenAbsent = !state.found
    }
    this.#takes = taken === 'taken'
  }

  end(error: unknown): void {
    if (!this.#isOpen) return
    this.close()
    this.listener.ended(error)
  }

  /** Allows further states after `full` or `later`. */
  resume(): void {
    this.#takes = true
    this.watches.schedule(this)
  }

  /** Idempotent. */
  close(): void {
    if (!this.#isOpen) return
    this.#isOpen = false
    this.watches.remove(this)
  }
}

/**
 * Watchers of single keys. A watcher is registered before its key is read, so no change is missed in between. Changes only mark
 * watchers; then each key is read once for all its watchers, in slices.
 */
export class Watches {
  readonly #store: WatchedStore
  readonly #get: (request: GetRequest) => Awaitable<GetAnswer>
  readonly #byKey = new Map<string, WatchedKey>()
  readonly #due = new Map<WatchedKey, Set<Watcher>>()
  /**
   * Keys with locks of living transactions; the one that has waited longest comes first. They do not occupy places of other
   * reads.
   */
  readonly #locked = new Set<WatchedKey>()
  /** Watched keys whose versions expire. */
  readonly #expiring = new MinHeap<WatchedKey>()
  #expiryTimer: NodeJS.Timeout | undefined
  #unlisten: (() => void) | undefined
  #isReading = false
  #isRetrying = false
  #reads = 0

  /**
   * @param get reads the latest version. It resolves the locks of finished transactions, and throws `key_locked` at once for
   *   others.
   */
  constructor(store: WatchedStore, get: (request: GetRequest) => Awaitable<GetAnswer>) {
    this.#store = store
    this.#get = get
  }

  /** @param seenTs a state at this timestamp is known to the listener and not shown. */
  open(key: Uint8Array, listener: WatchListener, seenTs?: Timestamp): Watcher {
    const text = keyText(key)
    let watched = this.#byKey.get(text)
    if (watched === undefined) {
      this.#unlisten ??= this.#store.watchKeys(this)
      watched = new WatchedKey(text)
      this.#byKey.set(text, watched)
    }
    const watcher = new Watcher(this, watched, listener, seenTs)
    watched.watchers.add(watcher)
    this.schedule(watcher)
    return watcher
  }

  /** See `ChangesApi.watch`. */
  async *states({ key, seenTs, signal: late }: WatchRequest): AsyncGenerator<KeyState, void> {
    const signal = signalOf(late)
    let shown: KeyState | undefined
    let ended: { readonly error: unknown } | undefined
    let wake = (): void => {}
    const show = (state: KeyState): Taken => {
      shown = state
      wake()
      return 'full'
    }
    const end = (error?: unknown): void => {
      ended = { error }
      wake()
    }
    if (signal?.aborted) return
    const watcher = this.open(key, { show, ended: end }, seenTs)
    const unlisten = onAbort(signal, () => end())
    try {
      for (;;) {
        if (shown === undefined && ended === undefined) await new Promise<void>((resume) => (wake = resume))
        if (ended?.error !== undefined) throw ended.error
        if (ended !== undefined || shown === undefined) return
        const state: KeyState = shown
        shown = undefined
        yield state
        watcher.resume()
      }
    } finally {
      watcher.close()
      unlisten()
    }
  }

  /** Ends all watches. */
  close(): void {
    for (const { watchers } of this.#byKey.values()) for (const watcher of watchers) watcher.end(undefined)
  }

  // ---- Changes

  onCommitted(changes: readonly LoggedChange[]): void {
    for (const change of changes) {
      if (change.type === 'delete_range') this.#removed(change)
      else {
        const watched = this.#byKey.get(keyText(change.key))
        if (watched !== undefined) this.#changed(watched, change.commitTs)
      }
    }
  }

  *keys(): Generator<Uint8Array> {
    for (const { key } of this.#byKey.values()) yield key
  }

  changed(key: Uint8Array): void {
    const watched = this.#byKey.get(keyText(key))
    if (watched !== undefined) this.#changed(watched, UNSEEN)
  }

  reloaded(): void {
    for (const watched of this.#byKey.values()) this.#changed(watched, UNSEEN)
  }

  #removed({ key, end, commitTs }: RangeChange): void {
    const [from, to] = [keyText(key), keyText(end)]
    for (const [text, watched] of this.#byKey) {
      if (text < from || text >= to) continue
      watched.removedTs = Math.max(watched.removedTs, commitTs)
      this.#changed(watched, commitTs)
    }
  }

  #changed(watched: WatchedKey, ts: Timestamp): void {
    for (const watcher of watched.watchers) {
      watcher.changed(ts)
      this.schedule(watcher)
    }
  }

  // ---- Reads

  /** @internal */
  schedule(watcher: Watcher): void {
    if (!watcher.isDue) return
    const { watched } = watcher
    const due = this.#due.get(watched)
    if (due === undefined) this.#due.set(watched, new Set([watcher]))
    else due.add(watcher)
    this.#goOn()
  }

  #goOn(): void {
    if (this.#isReading || this.#due.size === 0) return
    this.#isReading = true
    setImmediate(() => void this.#readDue()) // The requests that made the change are answered first.
  }

  /** @internal */
  remove(watcher: Watcher): void {
    const { watched } = watcher
    watched.watchers.delete(watcher)
    if (watched.watchers.size > 0) return
    this.#byKey.delete(watched.text)
    this.#due.delete(watched)
    this.#locked.delete(watched)
    this.#expiring.delete(watched)
    if (this.#byKey.size > 0) return
    clearTimeout(this.#expiryTimer)
    this.#expiryTimer = undefined
    this.#unlisten?.()
    this.#unlisten = undefined
  }

  async #readDue(): Promise<void> {
    const slicer = new TimeSlicer()
    for (const [watched, due] of this.#due) {
      if (this.#reads >= READS_MAX) break // The end of a read continues here.
      this.#due.delete(watched)
      for (const watcher of due) watcher.beginRead()
      const answer = this.#get({ key: watched.key })
      if (answer instanceof Promise) void this.#read(watched, due, answer)
      else await this.#show(watched, due, answer, slicer)
    }
    this.#isReading = false
  }

  async #show(watched: WatchedKey, due: ReadonlySet<Watcher>, answer: GetAnswer, slicer: TimeSlicer): Promise<void> {
    if (answer.found && answer.expireTs !== undefined && watched.watchers.size > 0) {
      this.#expiring.set(watched, expiryTs({ ...answer, expireTs: answer.expireTs }))
      this.#awaitExpiry()
    } else this.#expiring.delete(watched)
    await showAll(due, stateOf(answer, watched.removedTs), slicer)
  }

  /** The clock may be set meanwhile, so the timer is never long. */
  #awaitExpiry(): void {
    const first = this.#expiring.first
    if (first === undefined) return
    const inMs = Math.max(1, physicalMs(first.rank) - physicalMs(this.#store.time.clock()))
    clearTimeout(this.#expiryTimer)
    this.#expiryTimer = setTimeout(() => this.#onExpiry(), Math.min(inMs, EXPIRY_LOOK_MS)).unref()
  }

  #onExpiry(): void {
    const now = this.#store.time.clock()
    for (let first = this.#expiring.first; first !== undefined && first.rank <= now; first = this.#expiring.first) {
      this.#expiring.delete(first)
      this.#changed(first, first.rank)
    }
    this.#awaitExpiry()
  }

  async #read(watched: WatchedKey, due: ReadonlySet<Watcher>, reading: Promise<GetAnswer>): Promise<void> {
    this.#reads++
    try {
      await this.#show(watched, due, await reading, new TimeSlicer())
    } catch (error) {
      if (isKvError(error, 'key_locked')) this.#wait(watched, due)
      else for (const watcher of due) watcher.end(error)
    } finally {
      this.#reads--
      this.#goOn()
    }
  }

  /** A commit wakes the watchers of its keys. This timer is for locks that end in another way. */
  #wait(watched: WatchedKey, due: ReadonlySet<Watcher>): void {
    for (const watcher of due) watcher.changed(UNSEEN)
    if (this.#byKey.get(watched.text) !== watched) return // The key has no watchers any more.
    this.#locked.add(watched)
    if (this.#isRetrying) return
    this.#isRetrying = true
    void this.#retry()
  }

  async #retry(): Promise<void> {
    while (this.#locked.size > 0) {
      await sleep(LOCKED_MS)
      let left = READS_MAX
      for (const watched of this.#locked) {
        if (left-- === 0) break
        this.#locked.delete(watched)
        for (const watcher of watched.watchers) this.schedule(watcher)
      }
    }
    this.#isRetrying = false
  }
}

async function showAll(due: ReadonlySet<Watcher>, state: KeyState, slicer: TimeSlicer): Promise<void> {
  for (const watcher of due) {
    watcher.show(state)
    const pause = slicer.next()
    if (pause !== undefined) await pause
  }
}

function stateOf(answer: GetAnswer, removedTs: Timestamp): KeyState {
  if (answer.found) {
    const { value, commitTs, expireTs } = answer // A new object: listeners may attach data to it.
    return expireTs === undefined ? { found: true, value, commitTs } : { found: true, value, commitTs, expireTs }
  }
  return { found: false, commitTs: Math.max(answer.deletedTs ?? 0, removedTs) }
}
