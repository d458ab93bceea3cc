import { stampedKey } from '../../src/percolator/stamped-key.js'
import type { Timestamp } from '../../src/timestamp.js'
import type { Scheduler } from './scheduler.js'
import type { Violations } from './violations.js'

interface PairSeen {
  readonly key: string
  readonly value: string
}

/** What a transaction saw of one key at its start_ts; its own writes are not among these. */
export interface KeyRead {
  readonly key: string
  /** undefined: absent. */
  readonly value: string | undefined
}

export interface RangeRead {
  readonly start: string
  readonly end: string
  readonly limit: number
  readonly reverse: boolean
  /** Its own writes at that time, which are to be seen in it. */
  readonly own: ReadonlyMap<string, string | undefined>
  readonly pairs: readonly PairSeen[]
}

/**
 * `open`: never asked to commit; `unknown`: nobody who lives was told. A snapshot that only reads is `aborted`: it leaves
 * nothing.
 */
export type TxnOutcome = 'open' | 'committed' | 'aborted' | 'unknown'

export const LOG = 'log/'

function logKey(commitTs: Timestamp): string {
  return Buffer.from(stampedKey({ key: Buffer.from(LOG), counter: 0 }, commitTs, 'text')).toString()
}

/** One transaction as its client knows it. Values that it writes begin with its id and a dot. */
export class TxnHistory {
  /** 0 where no answer told. */
  startTs: Timestamp = 0
  commitTs: Timestamp = 0
  outcome: TxnOutcome = 'open'
  /** On the scheduler's count of steps. */
  endedAt = Number.POSITIVE_INFINITY
  readonly reads: KeyRead[] = []
  readonly ranges: RangeRead[] = []
  /** Read for update: so it still was when it committed. */
  readonly lockedReads: KeyRead[] = []
  /** undefined: deleted. */
  readonly writes = new Map<string, string | undefined>()
  readonly increments = new Map<string, number>()
  /** Value of its versionstamped put; `logKey` has its key. */
  stamped: string | undefined
  /** Versions that had to be there at its start. */
  readonly checks: { readonly key: string; readonly commitTs: Timestamp }[] = []
  /** Cells that it acknowledges, as a run. */
  readonly acks: { readonly observer: string; readonly key: string; readonly fence: Timestamp }[] = []
  /** Under which it was to be committed. */
  readonly leases: { readonly lease: string; readonly fence: Timestamp }[] = []
  /** Keys that it attaches to a lease, by its fence. */
  readonly attached = new Map<string, Timestamp>()
  /** Keys that it leaves attached as it has found them. */
  readonly kept = new Set<string>()
  readonly notifies: { readonly observer: string; readonly key: string }[] = []

  constructor(
    readonly id: number,
    readonly kind: 'optimistic' | 'pessimistic' | 'one_shot' | 'snapshot',
    readonly isolation: 'snapshot' | 'serializable',
    readonly beganAt: number,
    readonly timeline: number,
  ) {}

  /** All keys that it wrote, if it is committed at `commitTs`. */
  keysAt(commitTs: Timestamp): string[] {
    const stamped = this.stamped === undefined ? [] : [logKey(commitTs)]
    return [...this.writes.keys(), ...this.increments.keys(), ...stamped]
  }

  get name(): string {
    return `${this.kind} ${this.isolation} transaction ${this.id} (start_ts ${this.startTs}, ${this.outcome})`
  }
}

/** A read of the newest versions, without a timestamp. */
export interface LatestRead {
  readonly keys: readonly string[]
  readonly found: ReadonlyMap<string, { readonly value: string; readonly commitTs: Timestamp }>
  /** What was already known to be committed when it began. */
  readonly floors: ReadonlyMap<string, Timestamp>
  readonly timeline: number
  /** Of the ledger, when it was answered. */
  readonly moment: number
}

/** A notification that its client was told of. */
export interface Notified {
  readonly observer: string
  readonly key: string
  readonly ts: Timestamp
  /** What was known to be committed when it began. */
  readonly floor: Timestamp
  readonly timeline: number
}

/** What all clients saw and were told. */
export class History {
  readonly txns: TxnHistory[] = []
  readonly latestReads: LatestRead[] = []
  readonly notified: Notified[] = []
  /** Claims that were handed out, whatever became of them. */
  readonly claims: { readonly observer: string; readonly key: string; readonly fence: Timestamp }[] = []
  /** Observers have been told of everything that expired up to here. */
  passedTs: Timestamp = 0
  /** Of each key: a version that somebody knows of. Whoever begins to read later sees it or a newer one. */
  #floors = new Map<string, Timestamp>()
  /** Of all keys. Whoever begins later starts above it. */
  #floor: Timestamp = 0
  readonly #startTs = new Set<Timestamp>()
  readonly #scheduler: Scheduler
  readonly #violations: Violations

  constructor(scheduler: Scheduler, violations: Violations) {
    this.#scheduler = scheduler
    this.#violations = violations
  }

  get floor(): Timestamp {
    return this.#floor
  }

  floorsOf(keys: readonly string[]): ReadonlyMap<string, Timestamp> {
    return new Map(keys.map((key) => [key, this.#floors.get(key) ?? 0]))
  }

  /** A crash took what was known. */
  forgetFloors(): void {
    this.#floors = new Map()
    this.#floor = 0
    this.#startTs.clear()
  }

  begin(kind: TxnHistory['kind'], isolation: TxnHistory['isolation'], timeline: number): TxnHistory {
    const txn = new TxnHistory(this.txns.length, kind, isolation, this.#scheduler.steps, timeline)
    this.txns.push(txn)
    return txn
  }

  hasStarted(startTs: Timestamp): boolean {
    return this.#startTs.has(startTs)
  }

  /** @param floor `floor` before the timestamp was asked for. */
  started(txn: TxnHistory, startTs: Timestamp, floor: Timestamp): void {
    txn.startTs = startTs
    this.#scheduler.note(startTs)
    if (startTs <= floor) this.#violations.add('real time', `${txn.name} began after a commit at ${floor} was known`)
    if (this.#startTs.has(startTs)) this.#violations.add('timestamp', `${startTs} was handed out twice: ${txn.name}`)
    this.#startTs.add(startTs)
  }

  committed(txn: TxnHistory, commitTs: Timestamp): void {
    txn.outcome = 'committed'
    txn.commitTs = commitTs
    txn.endedAt = this.#scheduler.steps
    this.#scheduler.note(commitTs)
    for (const key of txn.keysAt(commitTs)) this.saw(key, commitTs)
  }

  ended(txn: TxnHistory, outcome: 'aborted' | 'unknown'): void {
    txn.outcome = outcome
    txn.endedAt = this.#scheduler.steps
    this.#scheduler.noteText(outcome)
  }

  /** Somebody was told that this version is committed. */
  saw(key: string, commitTs: Timestamp): void {
    this.#floors.set(key, Math.max(commitTs, this.#floors.get(key) ?? 0))
    this.#floor = Math.max(this.#floor, commitTs)
  }

  readLatest(read: LatestRead): void {
    this.latestReads.push(read)
    for (const [key, { value, commitTs }] of read.found) {
      this.#scheduler.note(commitTs)
      this.#scheduler.noteText(value)
      this.saw(key, commitTs)
    }
  }
}
