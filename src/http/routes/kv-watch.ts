import type { FastifyReply, FastifyRequest } from 'fastify'
import { keyText } from '../../bytes/key-text.js'
import type { KeyState } from '../../changes/rules/changes-api.js'
import type { Taken, Watcher, WatchListener } from '../../changes/watches.js'
import { isKvError } from '../../errors/kv-error.js'
import { type Entry, watchOutput } from '../../kv-connect/answers.js'
import type { KvDatabase } from '../../kv-connect/kv-database.js'
import { LOCK_WAIT_MS_DEFAULT } from '../../limits.js'
import type { Timestamp } from '../../timestamp.js'
import { callerOf } from '../admission/access.js'
import type { Watch } from '../admission/open-watches.js'
import { EventStream } from '../connections/event-stream.js'
import type { AppContext } from './context.js'

/**
 * A stream of the keys of one watch: first their state, then, whenever one has changed, all of them at one snapshot. A client
 * that falls behind skips to the latest snapshot.
 */
export class KvWatch implements WatchListener {
  readonly #context: AppContext
  readonly #kv: KvDatabase
  readonly #keys: readonly Uint8Array[]
  /** commit_ts of each key in the last frame; 0: absent. */
  #known: readonly Timestamp[] | undefined
  #watchers: readonly Watcher[] = []
  #watch: Watch | undefined
  #stream: EventStream | undefined
  /** The latest state of a key that was shown. Where there is one key, it need not be read again. */
  #shown: KeyState | undefined
  #isStale = true
  #isReading = false

  constructor(context: AppContext, kv: KvDatabase, keys: readonly Uint8Array[]) {
    this.#context = context
    this.#kv = kv
    this.#keys = keys
  }

  /** @throws KvError `overloaded` */
  open(request: FastifyRequest, reply: FastifyReply): void {
    const { database, limits, traffic, heartbeats } = this.#context
    const watch = traffic.openWatch(request, reply, {
      requires: (grant) => grant.requireRange(this.#kv.range, 'database'),
      ended: this.ended,
    })
    if (watch.error !== undefined) throw watch.error
    this.#watch = watch
    const { stalledMsMax } = limits
    const budget = database.store.answers
    const stream = new EventStream(reply, {
      format: 'frames',
      budget,
      caller: callerOf(request),
      stalledMsMax,
      heartbeats,
    })
    this.#stream = stream
    if (stream.isOver) return
    this.#watchers = this.#keys.map((key) => database.changes.watches.open(key, this))
    void this.#follow(stream)
  }

  show(state: KeyState): Taken {
    this.#shown = state
    this.#isStale = true
    if (this.#stream !== undefined) void this.#follow(this.#stream)
    return 'taken'
  }

  /** Sends what is new until nothing is. Never rejects. */
  async #follow(stream: EventStream): Promise<void> {
    if (this.#isReading) return
    this.#isReading = true
    try {
      while (this.#isStale && !stream.isOver) {
        await stream.hasRoom()
        this.#isStale = false
        const frame = stream.isOver ? undefined : await this.#next()
        if (frame !== undefined) stream.write(frame)
      }
    } catch (error) {
      this.ended(error)
    } finally {
      this.#isReading = false
    }
  }

  /** @returns undefined when nothing has changed since the last frame, or while a living transaction holds a lock. */
  async #next(): Promise<Buffer | undefined> {
    const [key] = this.#keys
    const shown = this.#shown
    this.#shown = undefined
    if (shown !== undefined && key !== undefined && this.#keys.length === 1)
      return this.#frameOf(new Map(shown.found ? [[keyText(key), { key, ...shown }]] : []))
    try {
      const signal = this.#watch?.signal
      const asked = { keys: this.#keys, lockWaitMs: LOCK_WAIT_MS_DEFAULT, signal }
      const { pairs } = await this.#context.database.batchGet(asked)
      return this.#frameOf(new Map(pairs.map((pair) => [keyText(pair.key), pair])))
    } catch (error) {
      if (!isKvError(error, 'key_locked')) throw error
      this.#isStale = true
      return undefined
    }
  }

  #frameOf(found: ReadonlyMap<string, Entry>): Buffer | undefined {
    const entries = this.#keys.map((key) => found.get(keyText(key)))
    const known = this.#known
    this.#known = entries.map((entry) => entry?.commitTs ?? 0)
    if (known !== undefined && this.#known.every((ts, i) => ts === known[i])) return undefined
    const output = watchOutput(entries, this.#kv)
    const length = Buffer.alloc(4)
    length.writeUInt32LE(output.length)
    return Buffer.concat([length, output])
  }

  /** The protocol has no frame for an error: the client connects again, and gets the refusal then. */
  readonly ended = (error: unknown): void => {
    for (const watcher of this.#watchers) watcher.close()
    this.#watch?.end()
    if (error !== undefined) this.#stream?.end('')
    else this.#stream?.end()
  }
}
