import { randomUUID } from 'node:crypto'
import { invalid, KvError } from '../errors/kv-error.js'
import { backgroundTimer } from '../event-loop/background-timer.js'
import { MARK_AHEAD_MS, TSO_AHEAD_MS_MAX, TSO_BULK_AHEAD_MS_MAX, TSO_WAIT_MS_MAX } from '../limits.js'
import { LOGICAL_PER_MS, physicalMs, type Timestamp, timestampFromMs } from '../timestamp.js'
import type { Clock } from './clock.js'
import {
  FAR_MS,
  isHeldBack,
  isLastResort,
  isProved,
  isTimeKnown,
  isUnreachable,
  LAST_RESORT_MS,
  type OtherServer,
  patienceMs,
} from './lead.js'
import {
  decodeOracleRecord,
  encodeOracleRecord,
  isNewer,
  type OracleRecord,
  type OracleRow,
  type SwapOutcome,
} from './oracle-row.js'
import type { OracleRole, OracleState } from './oracle-state.js'
import { SharedTime } from './shared-time.js'
import { AskFailed } from './signed-ask.js'
import {
  ASK_COUNT_MAX,
  isTimestampAnswer,
  isTimestampAsk,
  type OracleForward,
  type TimestampAnswer,
  type TimestampAsk,
} from './timestamp-ask.js'
import type { TimestampSource } from './timestamp-source.js'
import { askOf, split, type Timer, type WaitingRequest, WaitingRequests } from './waiting-requests.js'

const BEAT_MS = 500
/** A server takes over when the row has not changed for this long. */
const TAKEOVER_MS = 2000
const REQUEST_MS_MAX = 10_000
/** Bound on a forwarded request: two reads of the table, the first under way when the request comes. */
const ANSWER_MS_MAX = 6000
/** Longer, so that a leader that is slow says so itself. Before that, the row shows that a leader is dead. */
const FORWARD_MS_MAX = ANSWER_MS_MAX + 1000
const READ_MS_MAX = 3000
/** Well below `TAKEOVER_MS`, so that one lost answer does not cost the lead. */
const SWAP_MS_MAX = 1000
/** Pause after a failure, shortened at random by up to half. */
const PAUSE_MS = 100
/** Least lead of the mark over the timestamps, when those run ahead of the clock. */
const SAVE_AHEAD_MIN_MS = 250
const RESIGNATIONS = 3
/**
 * After this long without an answer of a leader that is alive, a follower says that it cannot reach it. Above `TAKEOVER_MS`: by
 * then the row shows whether it is alive.
 */
const UNREACHED_MS = 3000
/**
 * Timestamps are late when some have been wanted for this long and none was had. Probes and the log say so. Far above
 * `TAKEOVER_MS`, so that no takeover makes all servers unready at once.
 */
const LATE_MS = 10_000

export interface LeaderOracleOptions {
  readonly row: OracleRow
  readonly forward: OracleForward
  readonly url: string
  readonly clock: Clock
  /** The other living servers, as far as this one knows. Default: none. */
  readonly others?: (() => readonly OtherServer[]) | undefined
  /**
   * Whether another server reaches this one, so that it may lead; undefined: no other one is there. Never rejects.
   * @param silent URL of the server that has led, which need not be asked. Default: no other one is there.
   */
  readonly isReached?: ((silent: string | undefined) => Promise<boolean | undefined>) | undefined
  /** Unique to this process: no other process, and no earlier run, has it. Default: random. */
  readonly id?: string | undefined
  readonly timer?: Timer | undefined
  readonly random?: (() => number) | undefined
  readonly onChange?: ((message: string) => void) | undefined
  /** Called with what an operator has to look at. */
  readonly onWarning?: ((message: string) => void) | undefined
}

interface Seen {
  readonly record: OracleRecord
  readonly bytes: Uint8Array
}

/**
 * The timestamps of many servers on one shared table. One server leads: it hands out timestamps from memory, below the mark in
 * the row that all share. The others ask it. The leader answers a batch only after a read of the row that began after the batch's
 * last request came and still shows the leader's epoch and id. Only what need not be in order goes without (`unproved`).
 *
 * The order does not depend on clocks or on punctual processes:
 *
 * - *No timestamp is handed out twice.* A leader hands out only what is below a mark that it has seen in the row under its epoch.
 *   Within an epoch only the leader writes, and it never lowers the mark until it stops for good. A takeover replaces the row as
 *   a whole, so it meets the last mark of the earlier epoch, and the next leader goes on above it.
 * - *A request that begins after another one's answer gets a higher timestamp.* Within an epoch, the memory of one process grows.
 *   If the earlier answer is of the older epoch, its timestamps are below the mark from which the newer epoch began. The earlier
 *   answer cannot be of the newer epoch: the row had been taken over before that answer, so a read that begins after it shows the
 *   newer epoch, and the older leader hands out nothing.
 *
 * Time only decides when a server tries to take over. A needless takeover costs a moment and nothing else. The row never holds
 * the same value twice, so a late write changes nothing once the row has gone on, and a process knows its own late write by its
 * id.
 */
export class LeaderOracle implements TimestampSource {
  /** Newest timestamp known to be handed out or observed. While this process leads: the newest of all. */
  #last: Timestamp = 0
  #known: Seen | undefined
  /** Monotonic time at which this state was first seen. */
  #knownSinceMs = 0
  /** undefined while another process leads. */
  #epoch: number | undefined
  #ledEpoch = 0
  /** Epoch that this process has given up because nobody reached it, and when that was. */
  #resigned = { epoch: 0, atMs: Number.NEGATIVE_INFINITY }
  #resigning: Promise<void> | undefined
  /** Until then this process leads on where the others do not reach it. */
  #lastResortUntilMs = Number.NEGATIVE_INFINITY
  /** Set while the leader of this epoch does not answer: since the first ask in vain. */
  #unreached: { readonly epoch: number; readonly sinceMs: number } | undefined
  /** Time of the servers by the row of another leader, when this process saw it; undefined: it has seen none. */
  #rowTime: { readonly ms: number; readonly atMs: number } | undefined
  /** This process has seen another leader's row change. */
  #hasMoved = false
  #isFarTold = false
  #obstacle = 'no server leads'
  /** Why this server does not take over though it is time. */
  #refusal: string | undefined
  #isPumping = false
  /** Monotonic time since which this server wants timestamps and has had none; undefined: it has had all that it wanted. */
  #wantedSinceMs: number | undefined
  #isLateTold = false
  #isStarted = false
  #isClosed = false
  #looking: Promise<void> | undefined
  #saving: Promise<void> | undefined
  #asking: AbortController | undefined
  #stopTick: () => void = () => {}
  readonly #waiting: WaitingRequests
  readonly #row: OracleRow
  readonly #forward: OracleForward
  readonly #url: string
  readonly #id: string
  readonly #others: () => readonly OtherServer[]
  readonly #isReached: (silent: string | undefined) => Promise<boolean | undefined>
  readonly #clock: Clock
  readonly #time: SharedTime
  readonly #timer: Timer
  readonly #random: () => number
  readonly #onChange: (message: string) => void
  readonly #onWarning: (message: string) => void

  constructor(options: LeaderOracleOptions) {
    this.#row = options.row
    this.#forward = options.forward
    this.#url = options.url
    this.#id = options.id ?? randomUUID()
    this.#others = options.others ?? (() => [])
    this.#isReached = options.isReached ?? (async () => undefined)
    this.#clock = options.clock
    this.#time = new SharedTime(options.clock)
    this.#timer = options.timer ?? backgroundTimer
    this.#random = options.random ?? Math.random
    this.#onChange = options.onChange ?? (() => {})
    this.#onWarning = options.onWarning ?? (() => {})
    this.#waiting = new WaitingRequests(this.#timer)
  }

  /** Begins to watch the row, and to lead when nobody does. Requests may come before. */
  start(): void {
    if (this.#isStarted || this.#isClosed) return
    this.#isStarted = true
    this.#tick()
  }

  get role(): OracleRole {
    const record = this.#known?.record
    const epoch = record?.epoch ?? 0
    if (this.#epoch !== undefined) return { role: 'leader', leader: this.#url, epoch }
    const leader = this.#leader
    if (leader === undefined || this.#silentMs >= TAKEOVER_MS) return { role: 'candidate', leader: undefined, epoch }
    return { role: 'follower', leader, epoch }
  }

  /** What no leader may fall behind, as far as this server knows: the newest epoch, and a bound of all timestamps. */
  get known(): { readonly epoch: number; readonly mark: Timestamp } {
    return { epoch: this.#known?.record.epoch ?? 0, mark: Math.max(this.#mark, this.#last + 1) }
  }

  /** Epoch of the leader that this server cannot reach although it is alive; 0: none. For this server's row in the registry. */
  get unreachedEpoch(): number {
    if (this.#unreached === undefined || this.#leader === undefined || this.#silentMs >= TAKEOVER_MS) return 0
    const { epoch, sinceMs } = this.#unreached
    const isOver = epoch !== this.#known?.record.epoch || this.#clock.elapsedMs() - sinceMs < UNREACHED_MS
    return isOver ? 0 : epoch
  }

  /** Whether this server goes by the time of a leader. For its row in the registry. */
  get knowsTime(): boolean {
    return this.#time.isKnown
  }

  get state(): OracleState {
    const offsetMs = this.#clockOffMs
    return {
      meters: this.#clock.meters,
      role: this.role,
      aheadMs: Math.max(0, physicalMs(this.#last) - this.#time.now()),
      clockAheadMs: Math.max(0, -offsetMs),
      clockOffsetMs: offsetMs,
      late: this.#wantedForMs >= LATE_MS ? this.#why : undefined,
    }
  }

  get #wantedForMs(): number {
    return this.#wantedSinceMs === undefined ? 0 : this.#clock.elapsedMs() - this.#wantedSinceMs
  }

  get #why(): string {
    return `no timestamps: ${this.#refusal ?? this.#obstacle}`
  }

  // ---- Timestamps

  get last(): Timestamp {
    return this.#last
  }

  clock(): Timestamp {
    return Math.max(this.#last, this.now())
  }

  now(): Timestamp {
    // Until the time is known, locks had better look younger than they are.
    const ms = this.#time.isKnown ? this.#time.now() : Math.floor(Math.min(this.#clock.now(), this.#timeOfRow))
    return timestampFromMs(ms) + LOGICAL_PER_MS - 1
  }

  ago(ms: number): Timestamp {
    return timestampFromMs(Math.max(0, physicalMs(this.now()) - ms))
  }

  /**
   * @param count up to `ASK_COUNT_MAX`.
   * @throws KvError `storage_unavailable` when no leader has answered within `REQUEST_MS_MAX`.
   */
  async next(count = 1): Promise<Timestamp> {
    if (!Number.isSafeInteger(count) || count < 1 || count > ASK_COUNT_MAX)
      throw invalid('count', `count must be 1 to ${ASK_COUNT_MAX}`)
    const { last } = await this.#request({ count, floor: 0 })
    this.#clock.meters.timestamps += count
    return last
  }

  /**
   * A timestamp that nobody else gets, for the start of a transaction that reads nothing. It needs no proof of the lead: another
   * server may have handed out higher ones already, as if this one had been taken earlier.
   * @returns undefined unless this process leads, as far as it knows, and has timestamps left below the mark.
   */
  unproved(): Timestamp | undefined {
    const last = this.#lastOf({ count: 1, floor: 0 })
    if (this.#epoch === undefined || last >= this.#mark) return undefined
    this.#last = last
    this.#clock.meters.timestamps++
    return last
  }

  /**
   * Like `next`, for clients: waits until the last timestamp is no more than `TSO_AHEAD_MS_MAX` ahead of the leader's clock,
   * as far as this server knows. The leader waits too, see `answer`.
   * @throws KvError `overloaded` after `TSO_WAIT_MS_MAX`; what `next` throws.
   */
  nextForClient(count: number): Promise<Timestamp> {
    const aheadMsMax = count === 1 ? TSO_AHEAD_MS_MAX : TSO_BULK_AHEAD_MS_MAX
    return this.#onceNotFarAhead(count, aheadMsMax, () => this.next(count))
  }

  /** @param ask must add its count to the waiting requests before it returns. */
  async #onceNotFarAhead<T>(count: number, aheadMsMax: number, ask: () => Promise<T>): Promise<T> {
    const { aheadWaits } = this.#clock.meters
    for (let waitedMs = 0; ; ) {
      const nowMs = this.#time.now()
      const last = Math.max(this.#last, timestampFromMs(nowMs) - 1) + this.#waiting.count + count
      const tooEarlyMs = physicalMs(last) - aheadMsMax - nowMs
      if (tooEarlyMs <= 0) return ask()
      if (waitedMs >= TSO_WAIT_MS_MAX)
        throw new KvError('overloaded', `timestamps are ${aheadMsMax} ms ahead of the clock: ask for fewer`, {})
      const waitMs = Math.min(tooEarlyMs, TSO_WAIT_MS_MAX - waitedMs)
      await this.#sleep(waitMs)
      waitedMs += waitMs
      aheadWaits.observe(waitMs / 1000)
    }
  }

  /**
   * Sends `ts` to the leader, whose clock says whether it is in the future. Timestamps on their way to other servers at
   * that moment may still be lower.
   */
  observe(ts: Timestamp): undefined | Promise<void> {
    if (ts <= this.#last) return undefined
    return this.#request({ count: 0, floor: ts }).then(() => {})
  }

  async #request(ask: TimestampAsk): Promise<TimestampAnswer> {
    if (this.#isClosed) throw this.#stopped()
    this.#wantedSinceMs ??= this.#clock.elapsedMs()
    const answered = this.#waiting.add(ask, false, REQUEST_MS_MAX, () => this.#late())
    this.#pump()
    try {
      const answer = await answered
      if (answer === 'not_leader') throw this.#late() // Only forwarded requests are dismissed.
      return answer
    } catch (error) {
      if (!this.#isClosed) this.#failed()
      throw error
    }
  }

  #failed(): void {
    this.#clock.meters.failures++
    if (this.#isLateTold || this.#wantedForMs < LATE_MS) return
    this.#isLateTold = true
    this.#onWarning(`${this.#why}; what needs one is 503`)
  }

  /** Call after requests were answered. */
  #succeeded(): void {
    if (this.#isLateTold) this.#onWarning(`timestamps are had again, after ${Math.round(this.#wantedForMs / 1000)} s`)
    this.#isLateTold = false
    this.#wantedSinceMs = this.#waiting.isEmpty ? undefined : this.#clock.elapsedMs()
  }

  /**
   * Answers a request of another server.
   * @throws KvError `overloaded` when many timestamps are asked for at once and they run far ahead of the clock;
   *   `storage_unavailable`.
   */
  async answer(ask: TimestampAsk): Promise<TimestampAnswer | 'not_leader'> {
    if (!isTimestampAsk(ask)) throw invalid('count', `count must be 0 to ${ASK_COUNT_MAX}, floor a timestamp`)
    const endsAtMs = this.#clock.elapsedMs() + ANSWER_MS_MAX
    if (this.#epoch === undefined || ask.count < LOGICAL_PER_MS) return this.#answer(ask, endsAtMs)
    return this.#onceNotFarAhead(ask.count, TSO_AHEAD_MS_MAX, () => this.#answer(ask, endsAtMs))
  }

  async #answer(ask: TimestampAsk, endsAtMs: number): Promise<TimestampAnswer | 'not_leader'> {
    if (this.#epoch === undefined) return 'not_leader'
    const answered = this.#waiting.add(ask, true, endsAtMs - this.#clock.elapsedMs(), () => this.#late())
    this.#pump()
    return answered
  }

  #late(): KvError<'storage_unavailable'> {
    return new KvError('storage_unavailable', this.#why, {})
  }

  #stopped(): KvError<'storage_unavailable'> {
    return new KvError('storage_unavailable', 'no timestamps: the server is stopping', {})
  }

  /** Works while requests wait, on one batch at a time. Requests that come meanwhile form the next batch. */
  #pump(): void {
    if (this.#isPumping) return
    this.#isPumping = true
    void this.#work().finally(() => {
      this.#isPumping = false
      if (!this.#waiting.isEmpty) this.#pump()
    })
  }

  async #work(): Promise<void> {
    await undefined // Requests of the same turn share a batch.
    while (!this.#waiting.isEmpty)
      try {
        if (this.#epoch === undefined) await this.#askLeader()
        else await this.#handOut()
      } catch (error) {
        this.#obstacle = messageOf(error)
        await this.#pause()
      }
  }

  // ---- As leader

  async #handOut(): Promise<void> {
    const batch = this.#waiting.take()
    try {
      const proof = this.#note(await this.#read())
      if (proof.id !== this.#id || proof.epoch !== this.#epoch) return
      for (const request of batch) {
        const last = this.#lastBelowMark(request)
        if (last >= this.#mark) return await this.#waitForMark(last)
        this.#last = last
        request.fulfil({ last, nowMs: this.#time.now() })
        this.#succeeded()
      }
    } finally {
      this.#waiting.putBack(batch)
    }
  }

  #lastOf({ count, floor }: TimestampAsk): Timestamp {
    const seen = floor === this.#last + 1 ? floor : Math.min(floor, this.clock())
    const last = Math.max(this.#last, seen)
    return count === 0 ? last : Math.max(last, timestampFromMs(this.#time.now()) - 1) + count
  }

  /**
   * When calls of the table take seconds, the clock may pass each mark before the leader has proved its lead again.
   * Timestamps then stay behind the clock, which only makes locks look older.
   */
  #lastBelowMark(request: TimestampAsk): Timestamp {
    const last = this.#lastOf(request)
    return last >= this.#mark && request.floor <= this.#last ? this.#last + request.count : last
  }

  /** Exclusive upper bound of the timestamps handed out. */
  get #mark(): Timestamp {
    return this.#known?.record.mark ?? 0
  }

  async #waitForMark(ts: Timestamp): Promise<void> {
    const beganMs = this.#clock.elapsedMs()
    try {
      await this.#raiseMark(ts)
    } finally {
      this.#clock.meters.markWaits.observe((this.#clock.elapsedMs() - beganMs) / 1000)
    }
  }

  /**
   * Runs one save at a time; each save is a beat too. A caller whose timestamp the new mark does not cover calls again.
   */
  #raiseMark(ts: Timestamp): Promise<void> {
    this.#saving ??= this.#saveMark(ts).finally(() => {
      this.#saving = undefined
    })
    return this.#saving
  }

  async #saveMark(ts: Timestamp): Promise<void> {
    const known = this.#known
    if (known === undefined || this.#epoch === undefined) return
    const aheadMark = Math.max(
      timestampFromMs(this.#time.now() + MARK_AHEAD_MS),
      ts + timestampFromMs(SAVE_AHEAD_MIN_MS),
    )
    await this.#write(known, { ...known.record, mark: Math.max(this.#mark, aheadMark), beat: known.record.beat + 1 })
  }

  /** Reads the row again unless the write is known to be done, so that its state is known in any case. */
  async #write(expected: Seen | undefined, record: OracleRecord): Promise<SwapOutcome> {
    const next = encodeOracleRecord(record)
    const outcome = await this.#swap(expected?.bytes, next)
    this.#note(outcome === 'done' ? next : await this.#read())
    return outcome
  }

  // ---- As follower

  async #askLeader(): Promise<void> {
    this.#waiting.dismissForwarded()
    if (this.#leader === undefined || this.#silentMs >= TAKEOVER_MS) {
      await this.#look()
      if (this.#epoch !== undefined) return
    }
    const leader = this.#leader
    if (leader === undefined) return this.#pause()
    const batch = this.#waiting.take()
    if (batch.length === 0) return
    const known = this.#known
    const askedMs = this.#clock.elapsedMs()
    try {
      await this.#forwardTo(leader, batch)
      this.#unreached = undefined
    } catch (error) {
      this.#obstacle = messageOf(error)
      this.#noteUnreached(known?.record.epoch ?? 0, askedMs, error)
      await this.#look()
      if (this.#known === known) await this.#pause()
    } finally {
      this.#waiting.putBack(batch)
    }
  }

  /** A leader that the row shows to be silent is away rather than unreachable. */
  #noteUnreached(epoch: number, askedMs: number, error: unknown): void {
    const isReached = error instanceof AskFailed && error.isReached
    if (isReached || this.#silentMs >= TAKEOVER_MS) this.#unreached = undefined
    else if (this.#unreached?.epoch !== epoch) this.#unreached = { epoch, sinceMs: askedMs }
  }

  async #forwardTo(leader: string, batch: readonly WaitingRequest[]): Promise<void> {
    const newest = this.#last
    const ask = askOf(batch)
    const answer = await this.#ask(leader, ask)
    if (answer === 'not_leader') throw new AskFailed(`${leader} no longer leads`, true, undefined)
    if (!isTimestampAnswer(answer) || answer.last - ask.count < newest)
      throw new AskFailed(`${leader} has answered timestamps that were handed out before`, true, undefined)
    this.#last = Math.max(this.#last, answer.last)
    this.#time.follow(answer.nowMs)
    this.#warnOfClock()
    split(batch, answer)
    this.#succeeded()
  }

  /** Ends early when another server has taken over. */
  async #ask(url: string, ask: TimestampAsk): Promise<TimestampAnswer | 'not_leader'> {
    const asking = new AbortController()
    this.#asking = asking
    const aborted = new Promise<never>((_, reject) => {
      asking.signal.addEventListener('abort', () => reject(asking.signal.reason), { once: true })
    })
    const stopTimer = this.#timer(FORWARD_MS_MAX, () => asking.abort(new Error(`${url}, which leads, does not answer`)))
    try {
      return await Promise.race([this.#forward(url, ask, asking.signal), aborted])
    } finally {
      stopTimer()
      this.#asking = undefined
    }
  }

  // ---- The row

  /** undefined when there is no leader or this process is the leader. */
  get #leader(): string | undefined {
    const record = this.#known?.record
    return record === undefined || record.url === '' || record.id === this.#id ? undefined : record.url
  }

  /** Milliseconds for which the row has not changed, as far as this process has seen. */
  get #silentMs(): number {
    return this.#clock.elapsedMs() - this.#knownSinceMs
  }

  /**
   * Takes over, steps down or goes on, by what the row has shown.
   * @throws Error when there is no row any more, or it is damaged.
   */
  #note(bytes: Uint8Array | undefined): OracleRecord {
    if (bytes === undefined) throw new Error("the oracle's row is gone")
    const record = decodeOracleRecord(bytes)
    const known = this.#known
    // Of two overlapping reads, the earlier one may end last.
    if (known !== undefined && !isNewer(record, known.record)) return record
    this.#known = { record, bytes }
    this.#knownSinceMs = this.#clock.elapsedMs()
    if (record.id !== this.#id) this.#noteTimeOf(record, known !== undefined)
    this.#refusal = undefined
    const isOwn = record.id === this.#id && !this.#isClosed && record.epoch !== this.#resigned.epoch
    if (!isOwn) this.#stepDown(record)
    else if (this.#epoch !== record.epoch) this.#lead(record)
    if (known?.record.epoch !== record.epoch || known.record.url !== record.url)
      this.#asking?.abort(new Error(`${known?.record.url} no longer leads`))
    return record
  }

  /** Runs also when a takeover that seemed to have failed lands late: nothing was handed out in its epoch. */
  #lead(record: OracleRecord): void {
    this.#epoch = this.#ledEpoch = record.epoch
    this.#last = Math.max(this.#last, record.mark)
    const runsOn = this.#hasMoved || isTimeKnown(this.#others())
    this.#time.lead(runsOn ? this.#timeOfRow : Math.max(this.#clock.now(), this.#timeOfRow))
    this.#warnOfClock()
    this.#onChange(`this server hands out the timestamps now, in epoch ${record.epoch}`)
    this.#raiseMark(this.#last).catch((error: unknown) => {
      this.#obstacle = messageOf(error)
    })
  }

  #stepDown(record: OracleRecord): void {
    if (this.#epoch === undefined) return
    this.#onChange(
      `this server does not hand out timestamps any more: epoch ${record.epoch} began at ${record.url || 'no server'}`,
    )
    this.#epoch = undefined
    this.#time.stopLeading()
    this.#waiting.dismissForwarded()
  }

  /** Reads the row, and takes over if that is due. Runs once at a time. */
  #look(): Promise<void> {
    this.#looking ??= this.#takeOverWhereDue().finally(() => {
      this.#looking = undefined
    })
    return this.#looking
  }

  async #takeOverWhereDue(): Promise<void> {
    const isFirst = this.#known === undefined
    const bytes = await this.#read()
    if (bytes !== undefined || this.#known !== undefined) this.#note(bytes)
    const known = this.#known
    if (this.#epoch !== undefined || this.#isClosed || !this.#isTakeoverDue(known, isFirst)) return
    const isReached = await this.#isReached(known?.record.url)
    if (this.#known !== known || this.#isClosed) return
    if (!isProved({ isReached, freeMs: this.#silentMs }))
      return this.#leaveToOthers(`they do not reach it at ${this.#url}: set --advertise to where they do`)
    const nowMs = this.#clock.elapsedMs()
    const isLast = isLastResort(isReached, { agoMs: this.#resignedAgoMs, others: this.#others() })
    this.#lastResortUntilMs = isLast ? nowMs + LAST_RESORT_MS : nowMs
    const { epoch, mark } = known?.record ?? { epoch: 0, mark: 0 }
    await this.#write(known, { epoch: epoch + 1, url: this.#url, id: this.#id, mark, beat: 1 })
  }

  #isTakeoverDue(known: Seen | undefined, isFirst: boolean): boolean {
    if (this.#isHeldBack) return false
    if (known === undefined) return true
    const { url } = known.record
    // The leader has stopped cleanly, or an earlier run of this server has ended otherwise.
    const isFree = url === '' || (isFirst && url === this.#url)
    const dueMs = isFree ? 0 : TAKEOVER_MS
    const clockOffMs = this.#clockOffMs
    if (this.#silentMs < dueMs) return false
    if (this.#silentMs >= dueMs + patienceMs({ clockOffMs, others: this.#others() })) return true
    this.#leaveToOthers(`its clock is ${inWords(clockOffMs)} the timestamps'`)
    return false
  }

  get #isHeldBack(): boolean {
    return isHeldBack({ agoMs: this.#resignedAgoMs, silentMs: this.#silentMs, others: this.#others() })
  }

  get #resignedAgoMs(): number {
    return this.#clock.elapsedMs() - this.#resigned.atMs
  }

  #leaveToOthers(why: string): void {
    const isNew = this.#refusal === undefined
    this.#refusal = `no server leads, and this one waits for another: ${why}`
    if (isNew) this.#onWarning(this.#refusal)
  }

  /** A leader that stops cleanly leaves the mark at the end of its timestamps. */
  #noteTimeOf({ url, mark }: OracleRecord, hasMoved: boolean): void {
    this.#hasMoved ||= hasMoved
    const ms = physicalMs(mark) - (url === '' ? 0 : MARK_AHEAD_MS)
    this.#rowTime = mark === 0 ? undefined : { ms, atMs: this.#clock.elapsedMs() }
  }

  /** What the row tells of the time of the servers; without a row the clock of this one. */
  get #timeOfRow(): number {
    const { ms, atMs } = this.#rowTime ?? { ms: this.#clock.now(), atMs: this.#clock.elapsedMs() }
    return ms + this.#clock.elapsedMs() - atMs
  }

  /** By how much this server's wall clock is ahead of the time of the servers, as far as that is known. */
  get #clockOffMs(): number {
    const wallMs = this.#clock.now() - this.#clock.aheadMs
    return wallMs - (this.#time.isKnown ? this.#time.now() : this.#timeOfRow)
  }

  #warnOfClock(): void {
    const clockOffMs = this.#clockOffMs
    const isFar = Math.abs(clockOffMs) > FAR_MS
    if (isFar && !this.#isFarTold)
      this.#onWarning(
        `the clock of this server is ${inWords(clockOffMs)} the timestamps', which all servers go by: set the one that is wrong`,
      )
    this.#isFarTold = isFar
  }

  #tick(): void {
    const isLastResort = this.#clock.elapsedMs() < this.#lastResortUntilMs
    if (this.#epoch !== undefined && !isLastResort && isUnreachable(this.#epoch, this.#others()))
      this.#giveUp(this.#epoch)
    if (this.#epoch !== undefined) this.#warnOfClock()
    const work = this.#epoch === undefined ? (this.#resigning ?? this.#look()) : this.#raiseMark(this.#last)
    void work
      .catch((error: unknown) => {
        this.#obstacle = messageOf(error)
      })
      .then(() => {
        if (!this.#isClosed) this.#stopTick = this.#timer(this.#tickMs(), () => this.#tick())
      })
  }

  #tickMs(): number {
    const untilTakeoverMs = TAKEOVER_MS - this.#silentMs
    if (this.#epoch !== undefined || untilTakeoverMs <= 0) return BEAT_MS
    return Math.min(BEAT_MS, untilTakeoverMs + this.#random() * PAUSE_MS)
  }

  // ---- Calls to the table

  #read(): Promise<Uint8Array | undefined> {
    return this.#within(READ_MS_MAX, this.#row.read())
  }

  async #swap(expected: Uint8Array | undefined, next: Uint8Array): Promise<SwapOutcome> {
    try {
      return await this.#within(SWAP_MS_MAX, this.#row.swap(expected, next, SWAP_MS_MAX))
    } catch {
      return 'unknown'
    }
  }

  #within<T>(ms: number, call: Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      const stopTimer = this.#timer(ms, () => reject(new Error('the table does not answer')))
      call.then(resolve, reject).finally(stopTimer)
    })
  }

  #pause(): Promise<void> {
    return this.#sleep(PAUSE_MS * (0.5 + this.#random() / 2))
  }

  #sleep(ms: number): Promise<void> {
    return new Promise((resolve) => {
      this.#timer(ms, resolve)
    })
  }

  // ---- The end of a lead

  /** Others take over at once. */
  #giveUp(epoch: number): void {
    this.#onWarning(
      `the other servers cannot reach this one at ${this.#url}: it hands out no more timestamps in epoch ${epoch}; set --advertise to where they reach it`,
    )
    this.#epoch = undefined
    this.#time.stopLeading()
    this.#resigned = { epoch, atMs: this.#clock.elapsedMs() }
    this.#waiting.dismissForwarded()
    this.#resigning = Promise.resolve(this.#saving)
      .catch(() => {})
      .then(() => this.#resign())
      .finally(() => {
        this.#resigning = undefined
      })
  }

  /**
   * Refuses all waiting requests. A leader saves the mark where its timestamps end, which is safe because it hands out
   * no more, and empties the URL, so that another server takes over at once.
   */
  async close(): Promise<void> {
    if (this.#isClosed) return
    this.#isClosed = true
    this.#stopTick()
    this.#waiting.rejectAll(() => this.#stopped())
    this.#asking?.abort(this.#stopped())
    const wasLeader = this.#epoch !== undefined
    this.#epoch = undefined
    await this.#saving?.catch(() => {})
    await this.#looking?.catch(() => {}) // A takeover may be under way.
    await this.#resigning?.catch(() => {})
    // If it fails, the mark saved before still holds.
    if (wasLeader || this.#known?.record.id === this.#id) await this.#resign().catch(() => {})
  }

  async #resign(): Promise<void> {
    for (let tries = 0; tries < RESIGNATIONS; tries++) {
      const known = this.#known
      if (known === undefined || known.record.id !== this.#id) return
      // A takeover may have landed after `close`. This process then does not know what earlier epochs handed out.
      const hasLed = known.record.epoch === this.#ledEpoch
      const mark = hasLed ? Math.min(known.record.mark, this.#last + 1) : known.record.mark
      await this.#write(known, { ...known.record, url: '', id: '', mark, beat: known.record.beat + 1 })
    }
  }
}

function inWords(clockOffMs: number): string {
  return `${Math.round(Math.abs(clockOffMs) / 1000)} s ${clockOffMs > 0 ? 'ahead of' : 'behind'}`
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}
