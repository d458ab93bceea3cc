import type { KeyRange } from '../bytes/key-range.js'
import { type Page, type PageRequest, SortedMap } from '../bytes/sorted-map.js'
import { integerOf } from '../errors/integer-of.js'
import { invalid, KvError } from '../errors/kv-error.js'
import { rest } from '../event-loop/rest.js'
import { HOLD_MS_MIN, type Limits } from '../limits.js'
import { belowSafePoint } from '../percolator/errors.js'
import { isSameRange, keyRangeOf } from '../percolator/given-range.js'
import { requireName } from '../percolator/name.js'
import { type ChangeLog, requireLog } from '../store/change-log.js'
import { CONSUMERS, consumerWrite, nameOfConsumer } from '../store/consumers.js'
import type { Pace } from '../store/pace.js'
import type { Store } from '../store/store.js'
import type { SystemWrite } from '../store/system-records.js'
import { physicalMs, type Timestamp } from '../timestamp.js'
import { Gap, widen } from './gap.js'
import type { ConsumerRegistration, ConsumerState, ConsumersApi } from './rules/changes-api.js'
import { decodeConsumer } from './rules/codec/consumer.js'
import { type Consumer, noSuchConsumer } from './rules/consumer.js'

const HOLD_MS_DEFAULT = 86_400_000
/** How often the server moves positions over gaps. */
const MOVE_MS = 10_000
/** A look at the log takes no longer. The next one goes on where it ended. */
const LOOK_MS_MAX = 5000

export interface ConsumersOptions {
  readonly limits: Pick<Limits, 'consumersMax' | 'holdMsMax'>
  /** Called with failures of background work. */
  readonly onError: (error: unknown) => void
}

export interface ConsumersSummary {
  readonly count: number
  /** Those whose changes were collected. */
  readonly lost: number
  /** The longest lag of the others. */
  readonly lagMs: number
}

interface ActiveConsumer {
  consumer: Consumer
  /** Above its position. */
  readonly gap: Gap
}

/** Durable positions in the change feed. */
export class Consumers implements ConsumersApi {
  readonly #store: Store
  readonly #options: ConsumersOptions
  readonly #byName = new SortedMap<ActiveConsumer>()
  /** Registrations that are being written. */
  #arriving = 0
  /** Names of which a write has failed: the disk knows whether it has landed. */
  readonly #inDoubt = new Set<string>()
  #timer: NodeJS.Timeout | undefined
  readonly #end = new AbortController()
  /** Never rejects. */
  #moving: Promise<void> | undefined

  /** Knows of no consumers until it is opened. */
  constructor(store: Store, options: ConsumersOptions) {
    this.#store = store
    this.#options = options
  }

  static async open(store: Store, options: ConsumersOptions): Promise<Consumers> {
    const consumers = new Consumers(store, options)
    await consumers.#load()
    void consumers.moveOn()
    return consumers
  }

  async #load(): Promise<void> {
    const { consumers, system } = this.#store
    consumers.listen({ moved: (consumer) => this.#moved(consumer), reloaded: () => void this.#reload() })
    for (const [record, value] of await system.list(CONSUMERS))
      this.#become(decodeConsumer(record.slice(CONSUMERS.length), value))
    this.#timer = setInterval(() => void this.moveOn(), MOVE_MS)
    this.#timer.unref()
  }

  async close(): Promise<void> {
    clearInterval(this.#timer)
    this.#end.abort()
    await this.#moving
  }

  /** Where there is none, no consumer is ever registered. */
  get #log(): ChangeLog {
    return requireLog(this.#store)
  }

  // ---- Calls

  async put(
    name: string,
    { range, sinceTs, holdMs }: ConsumerRegistration,
  ): Promise<{ readonly state: ConsumerState; readonly isNew: boolean }> {
    const { consumersMax, holdMsMax } = this.#options.limits
    const keyRange = keyRangeOf(range)
    const hold = integerOf('hold_ms', holdMs ?? Math.min(HOLD_MS_DEFAULT, holdMsMax), HOLD_MS_MIN, holdMsMax)
    return this.#changing(name, async () => {
      const { name: store, traits } = this.#store
      if (!traits.onePhaseCommit)
        throw new KvError(
          'not_supported',
          `the store ${store} has no consumers, because it cannot commit in one phase`,
          {},
        )
      const present = this.#byName.get(name)
      if (present !== undefined) {
        if (!isSameRange(present.gap.range, keyRange)) {
          const text = `the consumer ${name} has another range: delete it first, or take another name`
          throw new KvError('already_exists', text, { consumer: name })
        }
        return { state: await this.#write({ ...present.consumer, range, holdMs: hold }), isNew: false }
      }
      if (this.#byName.size + this.#arriving >= consumersMax)
        throw new KvError('overloaded', `there are ${consumersMax} consumers already`, {})
      this.#arriving++
      try {
        await this.#log.begin()
        const id = await this.#store.tso(1)
        const position = this.#originOf(sinceTs, id)
        const state = await this.#write({
          id,
          name,
          range,
          holdMs: hold,
          position,
          ackedTs: position,
          startTs: 0,
          commitTs: 0,
        })
        return { state, isNew: true }
      } finally {
        this.#arriving--
      }
    })
  }

  /** @throws KvError `invalid_argument` for a timestamp in the future; `ts_below_safe_point` */
  #originOf(sinceTs: Timestamp | undefined, now: Timestamp): Timestamp {
    if (sinceTs === undefined) return now
    if (sinceTs > now) throw invalid('since_ts', 'since_ts is in the future')
    const { start } = this.#log
    if (sinceTs < start) throw belowSafePoint(sinceTs, start)
    return sinceTs
  }

  async get(name: string): Promise<ConsumerState> {
    return this.state(name)
  }

  /** @throws KvError `not_found` */
  state(name: string): ConsumerState {
    return this.#stateOf(this.#find(name))
  }

  /** @returns undefined for an unknown consumer. */
  rangeOf(name: string): KeyRange | undefined {
    return this.#byName.get(name)?.gap.range
  }

  /**
   * Where its feed begins that is asked for from `sinceTs`, by default the position. One who asks from where it has acknowledged
   * begins at the position too: the changes in between are gaps, which may have been collected.
   * @throws KvError `not_found`
   */
  beginOf(name: string, sinceTs: Timestamp | undefined): Timestamp {
    const { position, ackedTs } = this.#find(name).consumer
    if (sinceTs === undefined) return position
    return sinceTs < ackedTs ? sinceTs : Math.max(sinceTs, position)
  }

  async list(): Promise<readonly ConsumerState[]> {
    return (await this.page({ limit: Number.POSITIVE_INFINITY })).items
  }

  /** @param reaches whether the caller may see it. Default: all. */
  async page(request: PageRequest, reaches?: (range: KeyRange) => boolean): Promise<Page<ConsumerState>> {
    const { items, next } = await this.#byName.page(request, ({ gap }) => reaches?.(gap.range) !== false)
    return { items: items.map((active) => this.#stateOf(active)), next }
  }

  remove(name: string): Promise<void> {
    return this.#changing(name, async () => {
      this.#find(name)
      await this.#submit(name, { name: nameOfConsumer(name), value: undefined })
      this.#byName.delete(name)
    })
  }

  ack(name: string, ts: Timestamp): Promise<ConsumerState> {
    return this.#changing(name, async () => {
      const { consumer } = this.#find(name)
      await this.#store.tso(1) // resolved_ts is not above the newest timestamp.
      // Below a timestamp above resolved_ts something may still commit.
      const done = Math.min(ts, this.#log.resolve())
      if (done <= consumer.ackedTs) return this.state(name)
      return this.#write({ ...consumer, position: Math.max(consumer.position, done), ackedTs: done })
    })
  }

  reset(name: string, sinceTs?: Timestamp): Promise<ConsumerState> {
    return this.#changing(name, async () => {
      const { consumer } = this.#find(name)
      const position = this.#originOf(sinceTs, await this.#store.tso(1))
      return this.#write({ ...consumer, position, ackedTs: position })
    })
  }

  // ---- Registrations

  #find(name: string): ActiveConsumer {
    const active = this.#byName.get(name)
    if (active === undefined) throw noSuchConsumer(name)
    return active
  }

  #become(consumer: Consumer): ActiveConsumer {
    const present = this.#byName.get(consumer.name)
    // The gap stays as it is known, unless a reset has led below it.
    if (present?.consumer.id === consumer.id && present.consumer.position <= consumer.position) {
      present.consumer = consumer
      present.gap.passed(consumer.position)
      return present
    }
    const active = { consumer, gap: new Gap(keyRangeOf(consumer.range), consumer.position) }
    this.#byName.set(consumer.name, active)
    return active
  }

  #moved(consumer: Consumer): void {
    if (this.#byName.has(consumer.name)) this.#become(consumer)
  }

  /** Changes of one consumer run one after the other. */
  #changing<T>(name: string, body: () => Promise<T>): Promise<T> {
    requireName('consumer', name)
    return this.#store.system.hold([nameOfConsumer(name)], async () => {
      await this.#settle(name)
      return body()
    })
  }

  async #write(consumer: Consumer): Promise<ConsumerState> {
    await this.#submit(consumer.name, consumerWrite(consumer))
    return this.#stateOf(this.#become(consumer))
  }

  async #submit(name: string, write: SystemWrite): Promise<void> {
    try {
      await this.#store.system.write([write])
    } catch (error) {
      this.#inDoubt.add(name)
      await this.#settle(name).catch(() => {}) // Later, when the database is not open again yet.
      throw error
    }
  }

  /** A write that has failed may be on disk. Call it while the name is held. @throws KvError `storage_unavailable` */
  async #settle(name: string): Promise<void> {
    if (!this.#inDoubt.has(name)) return
    const record = await this.#store.system.get(nameOfConsumer(name))
    this.#inDoubt.delete(name)
    this.#byName.delete(name)
    if (record !== undefined) this.#become(decodeConsumer(name, record))
  }

  /** After the database was opened again. */
  async #reload(): Promise<void> {
    for (const name of this.#byName.keys()) this.#inDoubt.add(name)
    for (const name of [...this.#inDoubt])
      await this.#changing(name, async () => {}).catch((error) => this.#report(error))
  }

  #report(error: unknown): void {
    if (!this.#end.signal.aborted && !(error instanceof KvError)) this.#options.onError(error)
  }

  // ---- Positions

  #stateOf({ consumer: { name, range, position, holdMs } }: ActiveConsumer): ConsumerState {
    return { name, range, position, holdMs, lagMs: this.#lagMs(position), isLost: this.#isLost(position) }
  }

  #isLost(position: Timestamp): boolean {
    return position < this.#log.start
  }

  /** Age of the position; 0 when nothing has been committed above it. */
  #lagMs(position: Timestamp): number {
    return this.#log.newest <= position ? 0 : Math.max(0, physicalMs(this.#store.now()) - physicalMs(position))
  }

  summary(): ConsumersSummary {
    let [lost, lagMs] = [0, 0]
    for (const { consumer } of this.#byName.values())
      if (this.#isLost(consumer.position)) lost++
      else lagMs = Math.max(lagMs, this.#lagMs(consumer.position))
    return { count: this.#byName.size, lost, lagMs }
  }

  /** The positions that hold collection back. */
  *holders(): Generator<{ readonly by: 'consumer'; readonly ts: Timestamp }, void, void> {
    for (const { consumer } of this.#byName.values()) {
      const { position: ts } = consumer
      if (ts >= this.#store.time.ago(this.#holdMsOf(consumer))) yield { by: 'consumer', ts }
    }
  }

  #holdMsOf({ holdMs }: Consumer): number {
    return Math.min(holdMs, this.#options.limits.holdMsMax)
  }

  /** Moves positions over what has no change of their range. Called every 10 s. Never rejects. */
  moveOn(): Promise<void> {
    this.#moving ??= this.#moveOn()
      .catch((error) => this.#report(error))
      .finally(() => {
        this.#moving = undefined
      })
    return this.#moving
  }

  async #moveOn(): Promise<void> {
    const present = [...this.#byName.values()].filter(({ consumer }) => !this.#isLost(consumer.position))
    if (present.length === 0 || this.#store.upkeep.restoring !== undefined) return
    await this.#store.tso(1) // resolved_ts is not above the newest timestamp.
    const resolvedTs = this.#log.resolve()
    const signal = AbortSignal.any([this.#end.signal, AbortSignal.timeout(LOOK_MS_MAX)])
    const pace: Pace = { pause: (workedMs) => rest(workedMs, signal), signal }
    const gaps = present.map(({ gap }) => gap)
    // After a collection that asks nobody, some of them may be lost.
    await widen(gaps, this.#log, resolvedTs, pace).catch((error) => this.#report(error))
    const moving = present.filter((active) => this.#target(active) > active.consumer.position)
    if (moving.length === 0 || this.#end.signal.aborted) return
    const names = moving.map(({ consumer }) => consumer.name)
    await this.#store.system.hold(names.map(nameOfConsumer), () => this.#move(moving))
  }

  /**
   * A position moves only over all that can be seen, so that an active consumer is not written again and again. One that is about to
   * be given up moves up to its first change: it lags no more than that.
   */
  #target({ consumer, gap }: ActiveConsumer): Timestamp {
    const isLate = consumer.position < this.#store.time.ago(this.#holdMsOf(consumer) / 2)
    return gap.next === undefined || isLate ? gap.end : consumer.position
  }

  async #move(moving: readonly ActiveConsumer[]): Promise<void> {
    const moved: Consumer[] = []
    for (const active of moving) {
      const { consumer } = active
      const { name, position } = consumer
      const target = this.#target(active)
      if (this.#byName.get(name) !== active || this.#inDoubt.has(name) || target <= position) continue
      moved.push({ ...consumer, position: target })
    }
    if (moved.length === 0) return
    try {
      await this.#store.system.write(moved.map(consumerWrite))
    } catch (error) {
      for (const { name } of moved) this.#inDoubt.add(name)
      throw error
    }
    for (const consumer of moved) this.#become(consumer)
  }
}
