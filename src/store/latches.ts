import { laterTurn } from '../event-loop/time-slicer.js'
import { KEYS_PER_TURN } from '../limits.js'
import type { Histogram } from '../meters/histogram.js'

interface Holder {
  waitingFor: number
  start: (() => void) | undefined
}

interface Place {
  readonly holder: Holder
  readonly isShared: boolean
}

/** The latch of one key. It has one holder, or several that only read the key. */
interface Queue {
  holders: number
  isShared: boolean
  readonly waiting: Place[]
}

/**
 * One latch per key. Requests that touch the same key run one after another, in order of arrival; requests that only
 * read it run together. A request joins all its queues at once, so no two requests can wait for each other.
 * @see TiKV `storage/txn/latch.rs`.
 */
export class Latches {
  readonly #queues = new Map<string, Queue>()
  readonly #waits: Histogram | undefined

  /** @param waits observes the seconds of each wait. */
  constructor(waits?: Histogram) {
    this.#waits = waits
  }

  /**
   * Runs `body` while no other request holds any of the keys, until its promise settles.
   * @param keys no duplicates. A nested hold of one of them would wait for itself for ever.
   * @param shared further keys, no duplicates, whose latches other requests may share with this one.
   */
  async hold<T>(keys: readonly string[], body: () => Promise<T>, shared: readonly string[] = NO_KEYS): Promise<T> {
    const holder: Holder = { waitingFor: 0, start: undefined }
    for (const key of keys) this.#enter(key, holder, false)
    for (const key of shared) this.#enter(key, holder, true)
    if (holder.waitingFor > 0) {
      const beganMs = performance.now()
      await new Promise<void>((resolve) => {
        holder.start = resolve
      })
      this.#waits?.observe((performance.now() - beganMs) / 1000)
    }
    try {
      if (keys.length + shared.length > KEYS_PER_TURN) await laterTurn()
      return await body()
    } finally {
      this.release(keys, shared)
    }
  }

  /**
   * Takes the latches in this turn of the event loop if none of them is held. The caller must `release` them.
   * @returns false, with no latch taken, when another request holds one of them or waits for it.
   */
  take(keys: readonly string[], shared: readonly string[] = NO_KEYS): boolean {
    for (const key of keys) if (this.#queues.has(key)) return false
    for (const key of shared) {
      const queue = this.#queues.get(key)
      if (queue !== undefined && !isOpenToShare(queue)) return false
    }
    for (const key of keys) this.#queues.set(key, { holders: 1, isShared: false, waiting: [] })
    for (const key of shared) {
      const queue = this.#queues.get(key)
      if (queue === undefined) this.#queues.set(key, { holders: 1, isShared: true, waiting: [] })
      else queue.holders++
    }
    return true
  }

  release(keys: readonly string[], shared: readonly string[] = NO_KEYS): void {
    for (const key of keys) this.#leave(key)
    for (const key of shared) this.#leave(key)
  }

  isFree(key: string): boolean {
    return !this.#queues.has(key)
  }

  #enter(key: string, holder: Holder, isShared: boolean): void {
    const queue = this.#queues.get(key)
    if (queue === undefined) {
      this.#queues.set(key, { holders: 1, isShared, waiting: [] })
    } else if (isShared && isOpenToShare(queue)) {
      queue.holders++
    } else {
      queue.waiting.push({ holder, isShared })
      holder.waitingFor++
    }
  }

  #leave(key: string): void {
    const queue = this.#queues.get(key)
    if (queue === undefined || --queue.holders > 0) return
    const next = queue.waiting.shift()
    if (next === undefined) {
      this.#queues.delete(key)
      return
    }
    queue.isShared = next.isShared
    admit(queue, next)
    while (queue.isShared && queue.waiting[0]?.isShared) admit(queue, queue.waiting.shift() as Place)
  }
}

const NO_KEYS: readonly string[] = []

function isOpenToShare(queue: Queue): boolean {
  return queue.isShared && queue.waiting.length === 0
}

function admit(queue: Queue, { holder }: Place): void {
  queue.holders++
  if (--holder.waitingFor === 0) holder.start?.()
}
