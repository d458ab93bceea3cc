import type { KeyRange } from '../bytes/key-range.js'
import type { Page, PageRequest } from '../bytes/sorted-map.js'
import { commitRow } from '../coordinator/commit-row.js'
import type { TransactionContext } from '../coordinator/committer.js'
import type { EffectsAsRows } from '../coordinator/effect-rows.js'
import { integerOf } from '../errors/integer-of.js'
import { invalid, KvError } from '../errors/kv-error.js'
import type { Awaitable } from '../event-loop/after.js'
import { throttle } from '../event-loop/throttle.js'
import { HOLD_MS_MIN, type Limits } from '../limits.js'
import { isSameRange, keyRangeOf } from '../percolator/given-range.js'
import { requireName } from '../percolator/name.js'
import type { ChangeLog } from '../store/change-log.js'
import { CONSUMERS } from '../store/consumers.js'
import type { Pace } from '../store/pace.js'
import { type RecordKind, RecordTable } from '../store/record-table.js'
import type { Store } from '../store/store.js'
import { physicalMs, type Timestamp } from '../timestamp.js'
import { Gap, widen } from './gap.js'
import { requireTold } from './require-told.js'
import type { ConsumerRegistration, ConsumerState, ConsumersApi } from './rules/changes-api.js'
import { decodeConsumer, encodeConsumer } from './rules/codec/consumer.js'
import { type Consumer, noSuchConsumer } from './rules/consumer.js'
import { SharedPositions } from './shared-positions.js'

const KIND: RecordKind<Consumer> = { prefix: CONSUMERS, encode: encodeConsumer, decode: decodeConsumer }
const HOLD_MS_DEFAULT = 86_400_000
/** Interval at which the server moves positions over gaps. */
const MOVE_MS = 10_000
/** Longest look at the log. The next one resumes where it ended. */
const LOOK_MS_MAX = 5000

export interface ConsumersOptions {
  readonly limits: Pick<Limits, 'consumersMax' | 'holdMsMax'>
  /** For the transactions by which consumers of a shared store acknowledge. Called after the start only. */
  readonly context?: (() => TransactionContext) | undefined
  /** Called with failures of background work. */
  readonly onError: (error: unknown) => void
}

export interface ConsumersSummary {
  readonly count: number
  /** Consumers whose changes were collected. */
  readonly lost: number
  /** The longest lag of the others. */
  readonly lagMs: number
}

interface KnownGap {
  readonly gap: Gap
  /** The page begins here. */
  readonly position: Timestamp
}

export class Consumers implements ConsumersApi {
  readonly #store: Store
  readonly #options: ConsumersOptions
  readonly #consumers: RecordTable<Consumer>
  /** Absent for a store that one process has to itself: its records have all. */
  readonly #shared: SharedPositions | undefined
  /** By the id of a consumer, as of the last look at the log. */
  #gaps: ReadonlyMap<Timestamp, KnownGap> = new Map()
  #timer: NodeJS.Timeout | undefined
  readonly #end = new AbortController()
  /** Never rejects. */
  #moving: Promise<void> | undefined

  /** Call `open` before anything else. */
  constructor(store: Store, options: ConsumersOptions) {
    this.#store = store
    this.#options = options
    this.#consumers = new RecordTable(store.system, KIND)
    // Without a prompt log there are other servers, which change consumers too.
    this.#shared = store.log.prompt === undefined ? new SharedPositions(store) : undefined
  }

  static async open(store: Store, options: ConsumersOptions): Promise<Consumers> {
    const consumers = new Consumers(store, options)
    await consumers.#load()
    void consumers.moveOn()
    return consumers
  }

  async #load(): Promise<void> {
    const reloaded = (): void => void this.#reload().catch((error) => this.#report(error))
    this.#store.consumers.listen({ moved: (consumer) => this.#consumers.written(consumer.name, consumer), reloaded })
    await this.#consumers.load()
    this.#timer = setInterval(() => void this.moveOn(), MOVE_MS)
    this.#timer.unref()
  }

  async close(): Promise<void> {
    clearInterval(this.#timer)
    this.#end.abort()
    await this.#moving
  }

  get #log(): ChangeLog {
    return this.#store.log
  }

  /** See `EffectsAsRows`. Absent where positions travel on one-phase commits. */
  get effectsAsRows(): EffectsAsRows | undefined {
    const shared = this.#shared
    return shared && ((request) => shared.effectRows(request))
  }

  /**
   * Reads what other servers may have changed. @param name absent: all consumers.
   * @returns undefined when there are no other servers.
   */
  refresh(name?: string): undefined | Promise<void> {
    return this.#shared && this.#refresh(this.#shared, name)
  }

  async #refresh(shared: SharedPositions, name: string | undefined): Promise<void> {
    if (name === undefined) await this.#consumers.load()
    else await this.#consumers.refresh(name)
    const known = name === undefined ? [...this.#consumers.values()] : [this.#consumers.get(name)]
    await shared.read(known.filter((consumer) => consumer !== undefined))
  }

  #withPosition(consumer: Consumer): Consumer {
    return this.#shared?.of(consumer) ?? consumer
  }

  /** With their positions, as far as known. */
  *#all(): Generator<Consumer, void, void> {
    for (const consumer of this.#consumers.values()) yield this.#withPosition(consumer)
  }

  // ---- Calls

  async put(
    name: string,
    { range, sinceTs, holdMs }: ConsumerRegistration,
  ): Promise<{ readonly state: ConsumerState; readonly isNew: boolean }> {
    const { consumersMax, holdMsMax } = this.#options.limits
    const keyRange = keyRangeOf(range)
    const hold = integerOf('hold_ms', holdMs ?? Math.min(HOLD_MS_DEFAULT, holdMsMax), HOLD_MS_MIN, holdMsMax)
    requireName('consumer', name)
    let isNew = false
    const consumer = await this.#consumers.change(name, async (present) => {
      isNew = present === undefined
      if (present !== undefined && !isSameRange(keyRangeOf(present.range), keyRange)) {
        const text = `the consumer ${name} has another range: delete it first, or take another name`
        throw new KvError('already_exists', text, { consumer: name })
      }
      if (present !== undefined) return { ...present, range, holdMs: hold, ...(await this.#marked()) }
      // Including this one.
      if (this.#consumers.size > consumersMax)
        throw new KvError('overloaded', `there are ${consumersMax} consumers already`, {})
      await this.#log.begin()
      const id = await this.#store.tso(1)
      const position = this.#originOf(sinceTs, id)
      return { id, name, range, holdMs: hold, position, ackedTs: position, startTs: 0, commitTs: 0 }
    })
    return { state: this.#stateOf(consumer), isNew }
  }

  /** @throws KvError `invalid_argument` for a timestamp in the future; `ts_below_safe_point` */
  #originOf(sinceTs: Timestamp | undefined, now: Timestamp): Timestamp {
    if (sinceTs === undefined) return now
    if (sinceTs > now) throw invalid('since_ts', 'since_ts is in the future')
    requireTold(this.#store, sinceTs)
    return sinceTs
  }

  async get(name: string): Promise<ConsumerState> {
    await this.refresh(name)
    return this.state(name)
  }

  /** @throws KvError `not_found` */
  state(name: string): ConsumerState {
    return this.#stateOf(this.#find(name))
  }

  /** @returns undefined for an unknown consumer. */
  rangeOf(name: string): KeyRange | undefined {
    const range = this.#consumers.get(name)?.range
    return range && keyRangeOf(range)
  }

  /**
   * The timestamp at which a feed of the consumer begins; `sinceTs` absent: its position. A feed from the acknowledged timestamp
   * begins at the position too: the changes in between are gaps, which may have been collected.
   * @throws KvError `not_found`
   */
  beginOf(name: string, sinceTs: Timestamp | undefined): Timestamp {
    const { position, ackedTs } = this.#find(name)
    if (sinceTs === undefined) return position
    return sinceTs < ackedTs ? sinceTs : Math.max(sinceTs, position)
  }

  async list(): Promise<readonly ConsumerState[]> {
    return (await this.page({ limit: Number.POSITIVE_INFINITY })).items
  }

  /** @param mayAccess whether the caller may see the range. Default: all. */
  async page(request: PageRequest, mayAccess?: (range: KeyRange) => boolean): Promise<Page<ConsumerState>> {
    await this.refresh()
    const { items, next } = await this.#consumers.page(request, ({ range }) => mayAccess?.(keyRangeOf(range)) !== false)
    return { items: items.map((consumer) => this.#stateOf(consumer)), next }
  }

  async remove(name: string): Promise<void> {
    const removed: Consumer[] = []
    await this.#change(name, (consumer) => void removed.push(consumer))
    await this.#endMoves(removed.at(-1))
  }

  async ack(name: string, ts: Timestamp): Promise<ConsumerState> {
    await this.#store.tso(1) // resolved_ts is not above the newest timestamp.
    // Above resolved_ts a transaction may still commit below `ts`.
    const done = Math.min(ts, await this.#log.resolve(ts))
    if (this.#shared !== undefined) return this.#ackInRow(this.#shared, name, done)
    const acked = await this.#change(name, (consumer) => {
      if (done <= consumer.ackedTs) return consumer
      return { ...consumer, position: Math.max(consumer.position, done), ackedTs: done }
    })
    return this.#stateOf(acked)
  }

  async #ackInRow(shared: SharedPositions, name: string, ts: Timestamp): Promise<ConsumerState> {
    requireName('consumer', name)
    await this.#commitRow((startTs) => shared.moved(name, ts, startTs))
    return this.get(name)
  }

  async #commitRow(mutationAt: Parameters<typeof commitRow>[1]): Promise<void> {
    const { context } = this.#options
    if (context === undefined) throw new Error('consumers of a shared store need a context')
    await commitRow(context(), mutationAt)
  }

  /** Await before the answer to a change after which nobody may go on from what the record was `before`. */
  async #endMoves(before: Consumer | undefined): Promise<void> {
    const ended = before && this.#shared?.ended(before)
    if (ended !== undefined) await this.#commitRow(() => ended)
  }

  async reset(name: string, sinceTs?: Timestamp): Promise<ConsumerState> {
    const now = await this.#store.tso(1)
    await this.#log.begin()
    const before: Consumer[] = []
    const reset = await this.#change(name, async (consumer) => {
      before.push(consumer)
      const position = this.#originOf(sinceTs, now)
      const mark = await this.#marked()
      // What was acknowledged before does not count any more: see `SharedPositions`.
      const commitTs = mark.startTs ?? consumer.commitTs
      return { ...consumer, position, ackedTs: position, ...mark, commitTs }
    })
    await this.#endMoves(before.at(-1))
    return this.#stateOf(reset)
  }

  /** Makes the record differ from all that it was: where servers share the store, no two of its values may be equal. */
  async #marked(): Promise<{ readonly startTs?: Timestamp }> {
    return this.#shared === undefined ? {} : { startTs: await this.#store.tso(1) }
  }

  // ---- Registrations

  #find(name: string): Consumer {
    const consumer = this.#consumers.get(name)
    if (consumer === undefined) throw noSuchConsumer(name)
    return this.#withPosition(consumer)
  }

  #change<C extends Consumer | undefined>(name: string, decide: (consumer: Consumer) => Awaitable<C>): Promise<C> {
    requireName('consumer', name)
    return this.#consumers.change(name, (consumer): Awaitable<C> => {
      if (consumer === undefined) throw noSuchConsumer(name)
      return decide(consumer)
    })
  }

  /** Reads all positions again after a failed write: an unfinished transaction may have moved any of them. */
  async #reload(): Promise<void> {
    await this.#consumers.readInDoubt()
    const names = [...this.#consumers.values()].map(({ name }) => name)
    await Promise.all(names.map((name) => this.#consumers.refresh(name)))
  }

  #report(error: unknown): void {
    if (!this.#end.signal.aborted && !(error instanceof KvError)) this.#options.onError(error)
  }

  // ---- Positions

  #stateOf(consumer: Consumer): ConsumerState {
    const { name, range, position, holdMs } = this.#withPosition(consumer)
    return { name, range, position, holdMs, lagMs: this.#lagMs(position), isLost: this.#isLost(position) }
  }

  #isLost(position: Timestamp): boolean {
    return position < this.#log.start
  }

  /** Age of the position in milliseconds; 0 when it is known that nothing was committed above it. */
  #lagMs(position: Timestamp): number {
    const { prompt } = this.#log
    if (prompt !== undefined && prompt.newest <= position) return 0
    return Math.max(0, physicalMs(this.#store.now()) - physicalMs(position))
  }

  summary(): ConsumersSummary {
    let [count, lost, lagMs] = [0, 0, 0]
    for (const { position } of this.#all()) {
      count++
      if (this.#isLost(position)) lost++
      else lagMs = Math.max(lagMs, this.#lagMs(position))
    }
    return { count, lost, lagMs }
  }

  /** The positions that hold collection back. */
  *holders(): Generator<{ readonly by: 'consumer'; readonly ts: Timestamp }, void, void> {
    for (const consumer of this.#consumers.possible()) {
      const { position: ts } = this.#withPosition(consumer)
      if (ts >= this.#store.time.ago(this.#holdMsOf(consumer))) yield { by: 'consumer', ts }
    }
  }

  #holdMsOf({ holdMs }: Pick<Consumer, 'holdMs'>): number {
    return Math.min(holdMs, this.#options.limits.holdMsMax)
  }

  /** Moves positions over ranges of time without a change of their keys. Called every 10 s. Never rejects. */
  moveOn(): Promise<void> {
    this.#moving ??= this.#moveOn()
      .catch((error) => this.#report(error))
      .finally(() => {
        this.#moving = undefined
      })
    return this.#moving
  }

  async #moveOn(): Promise<void> {
    await this.refresh()
    if (this.#consumers.size > 0) await this.#log.begin() // Known since the first consumer was registered.
    const present = [...this.#all()].filter(({ position }) => !this.#isLost(position))
    this.#gaps = new Map(present.map((consumer) => [consumer.id, this.#gapOf(consumer)]))
    if (present.length === 0 || this.#store.upkeep.restoring !== undefined) return
    await this.#store.tso(1) // resolved_ts is not above the newest timestamp.
    const resolvedTs = await this.#log.resolve()
    const signal = AbortSignal.any([this.#end.signal, AbortSignal.timeout(LOOK_MS_MAX)])
    const pace: Pace = { pause: (workedMs) => throttle(workedMs, signal), signal }
    const gaps = [...this.#gaps.values()].map(({ gap }) => gap)
    // After a collection that overruled the holders, some positions may be lost.
    await widen(gaps, this.#log, resolvedTs, pace).catch((error) => this.#report(error))
    if (this.#end.signal.aborted) return
    const moving = present.filter((consumer) => this.#target(consumer) > consumer.position)
    // Other calls may have changed or removed the consumer meanwhile.
    const move = (consumer: Consumer | undefined): Consumer | undefined => {
      if (consumer === undefined) return undefined
      const moved = this.#withPosition(consumer)
      const position = this.#target(moved)
      return position > moved.position ? { ...consumer, position } : consumer
    }
    await Promise.all(moving.map(({ name }) => this.#consumers.change(name, move)))
  }

  /** The known gap, unless a reset has set the position below it. */
  #gapOf({ id, range, position }: Consumer): KnownGap {
    const known = this.#gaps.get(id)
    if (known === undefined || known.position > position) return { gap: new Gap(keyRangeOf(range), position), position }
    known.gap.passed(position)
    return { gap: known.gap, position }
  }

  /**
   * The position to move to. An active consumer is not rewritten again and again: its position moves only when nothing in sight
   * lies above it. A consumer about to be given up moves up to its first change, so that it lags no more than that.
   */
  #target({ id, holdMs, position }: Consumer): Timestamp {
    const known = this.#gaps.get(id)
    if (known === undefined || known.position > position) return position
    const isLate = position < this.#store.time.ago(this.#holdMsOf({ holdMs }) / 2)
    return known.gap.next === undefined || isLate ? known.gap.end : position
  }
}
