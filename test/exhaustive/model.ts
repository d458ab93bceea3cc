import { isKvError, type KvError } from '../../src/errors/kv-error.js'
import { blocksRead, get } from '../../src/percolator/actions/get.js'
import type {
  CheckSecondaryLocksAnswer,
  PrewriteAnswer,
  PrewriteRequest,
  ReadSet,
  TxnStatus,
} from '../../src/percolator/api.js'
import { isData } from '../../src/percolator/write.js'
import { TIMESTAMP_MAX, type Timestamp } from '../../src/timestamp.js'
import type { Model } from './search.js'
import { keyAt, NO_ROW, nameOf, refusalOf, type Snapshot, SnapshotStore } from './snapshot-store.js'

export type Kind = 'two_pc' | 'async' | 'one_pc'

export interface TxnPlan {
  /** Each is a world of its own. */
  readonly kinds: readonly Kind[]
  /** Indices of keys, the primary first. */
  readonly keys: readonly number[]
  /** It locks each key before it prewrites them. */
  readonly isPessimistic?: boolean
  /** Pessimistic: by `force_lock`, over newer versions. */
  readonly isForced?: boolean
  /** Its calculated commit_ts may be so much above its start_ts. Default: as much as one likes. */
  readonly commitsWithin?: number
  /** Serializable: the keys that it reads first, which are validated when it commits. None of `keys`. */
  readonly reads?: readonly number[]
  /** It deletes its keys. */
  readonly isDelete?: boolean
}

export interface WorldPlan {
  readonly keys: number
  readonly txns: readonly TxnPlan[]
  /** See `PrewriteRequest`. The coordinator asks for it; other clients need not. */
  readonly isLinearizable: boolean
  /** Somebody reads each key at one timestamp, and pushes locks out of the way. */
  readonly hasReader: boolean
  /** The safe point is raised once, to the last timestamp, at any time; then the keys are collected. */
  readonly isCollected?: boolean
}

/** One transaction, and its client. */
interface Txn {
  readonly kind: Kind
  /** 0: it has not begun. */
  readonly startTs: Timestamp
  /** Of each prewrite of which the client has the answer: min_commit_ts of an async lock; 0: it may be any lock. */
  readonly answers: readonly (Timestamp | undefined)[]
  /** Pessimistic: each for_update_ts that a lock was asked for. */
  readonly forUpdateTs: readonly Timestamp[]
  /** Pessimistic: the for_update_ts at which the lock of each key was granted, as far as the client knows. */
  readonly grantedAt: readonly (Timestamp | undefined)[]
  /** commit_ts of what it has read of each of its `reads`; 0: nothing. */
  readonly seen: readonly (Timestamp | undefined)[]
  /** Two phases: the commit_ts that the client was given. */
  readonly commitTs: Timestamp
  /** Two phases: the reads were found valid at `commitTs`. */
  readonly isValid: boolean
  /** The client has said what became of it, which is `outcome`. */
  readonly isTold: boolean
  /** What the client has said, or the rows have said at any time. 0: it is rolled back. */
  readonly outcome: Timestamp | undefined
}

interface Reader {
  readonly ts: Timestamp
  /** commit_ts of what was read of each key; 0: nothing. */
  readonly seen: readonly (Timestamp | undefined)[]
}

interface WorldState {
  readonly store: Snapshot
  readonly txns: readonly Txn[]
  readonly reader: Reader
  /** What a step has found to be wrong. */
  readonly wrong?: string
}

/** Who was told in a step what became of a transaction. */
interface Told {
  readonly index: number
  readonly commitTs: Timestamp
  readonly by: 'client' | 'resolver'
}
interface Next {
  readonly label: string
  readonly state: WorldState
}
type Step = Next & { readonly told?: Told | undefined }

/** A call to the store of a state. Calls with one text are the same. */
interface Call {
  readonly text: string
  readonly run: (store: SnapshotStore) => unknown
}
interface Called {
  readonly store: Snapshot
  /** What it has answered, unless it was refused. */
  readonly answer: unknown
  readonly refusal: KvError | undefined
}
type Steps<T = void> = Generator<Call, T, Called>

/** What need not be found out again for each state that has the snapshot: most states differ in their clients only. */
interface Known {
  readonly id: number
  /** By their texts. */
  readonly calls: Map<string, Called>
  /** What the rows say about each transaction that has begun, by its start_ts. */
  readonly outcomes: Map<Timestamp, readonly Evidence[]>
  readonly violation: string | undefined
}

interface Evidence {
  /** 0: rolled back. */
  readonly commitTs: Timestamp
  readonly source: string
}

/** No TTL is over, unless a resolver says that it is. */
const LOCK_TTL_MS = 3000
/** A commit in one phase whose reads are not valid takes a timestamp. Copies do so up to here, or there would be no end of them. */
const WASTED_TS_MAX = 6
/** How often a client asks for its locks, each time at a later for_update_ts. */
const LOCK_TRIES_MAX = 2

/** The real calls of the protocol in a small world. What is the model's own are the clients; README.md says why they are as they are. */
export class WorldModel implements Model<WorldState> {
  readonly initial: readonly Next[]
  readonly #plan: WorldPlan
  readonly #objects = new Map<string, object>()
  readonly #ids = new Map<object, number>()
  readonly #snapshots = new Map<string, Snapshot>()
  readonly #known = new Map<Snapshot, Known>()

  constructor(plan: WorldPlan) {
    this.#plan = plan
    let kinds: readonly (readonly Kind[])[] = [[]]
    for (const txn of plan.txns) kinds = kinds.flatMap((some) => txn.kinds.map((kind) => [...some, kind]))
    this.initial = kinds.map((each) => ({ label: `T1 begins at 1 (${each.join(', ')})`, state: this.#begin(each) }))
  }

  #begin(kinds: readonly Kind[]): WorldState {
    // The first begins at once. With the kinds of the others in any order, each is the first in some world.
    const txns = kinds.map((kind, i): Txn => {
      const isFirst = i === 0
      return {
        kind,
        startTs: isFirst ? 1 : 0,
        answers: [],
        forUpdateTs: isFirst && this.#plan.txns[i]?.isPessimistic ? [1] : [],
        grantedAt: [],
        seen: [],
        commitTs: 0,
        isValid: false,
        isTold: false,
        outcome: undefined,
      }
    })
    const rows = Array.from({ length: this.#plan.keys }, () => NO_ROW)
    const store = this.#snapshot({ rows, lastTs: 1, maxTs: 0, safePoint: 0 })
    return this.#state({ store, txns, reader: { ts: 0, seen: [] } })
  }

  // ---- Keys of states

  keyOf({ store, txns, reader, wrong }: WorldState): string {
    const key = [this.#knownOf(store).id, this.#idOf(reader)]
    for (const txn of txns) key.push(this.#idOf(txn))
    return wrong ?? textOf(key)
  }

  #knownOf(snapshot: Snapshot): Known {
    return this.#known.get(snapshot) as Known
  }

  /** The one object for all snapshots that are alike. */
  #snapshot(snapshot: Snapshot): Snapshot {
    const key = [snapshot.lastTs, snapshot.maxTs, snapshot.safePoint]
    for (const { lock, writes, values } of snapshot.rows) {
      key.push(lock === undefined ? 0 : this.#idOf(this.#the(lock)), writes.length, values.length, ...values)
      for (const write of writes) key.push(this.#idOf(this.#the(write)))
    }
    const text = textOf(key)
    const first = this.#snapshots.get(text)
    if (first !== undefined) return first
    this.#snapshots.set(text, snapshot)
    const id = this.#snapshots.size
    this.#known.set(snapshot, { id, calls: new Map(), outcomes: new Map(), violation: damageOf(snapshot) })
    return snapshot
  }

  /** The one object for all that have the same fields. */
  #the<T extends object>(value: T): T {
    if (this.#ids.has(value)) return value
    const text = JSON.stringify(value)
    const first = this.#objects.get(text)
    if (first !== undefined) return first as T
    this.#objects.set(text, value)
    this.#ids.set(value, this.#ids.size)
    return value
  }

  #idOf(value: object): number {
    return this.#ids.get(value) as number
  }

  // ---- Steps

  async next(state: WorldState): Promise<readonly Next[]> {
    const found: Step[] = []
    const { calls } = this.#knownOf(state.store)
    const steps = this.#stepsFrom(state, found)
    for (let step = steps.next(); !step.done; ) {
      const { text } = step.value
      let called = calls.get(text)
      if (called === undefined) {
        called = await this.#call(state.store, step.value)
        calls.set(text, called)
      }
      step = steps.next(called)
    }
    return found.map(({ label, state: after, told }) => ({ label, state: this.#state(after, told) }))
  }

  /** Notes what became of each transaction: as its client is told, or as the rows say. It has to be the same for ever. */
  #state({ store, txns, reader, wrong }: WorldState, told?: Told): WorldState {
    let contradiction = wrong
    const noted = txns.map((txn, i): Txn => {
      const { startTs } = txn
      if (startTs === 0) return this.#the(txn)
      let { outcome, isTold } = txn
      const learn = ({ commitTs, source }: Evidence): void => {
        if (outcome !== undefined && outcome !== commitTs)
          contradiction ??= `T${i + 1} is ${endText(outcome)}, and it is ${endText(commitTs)} ${source}`
        outcome ??= commitTs
      }
      for (const evidence of this.#outcomes(store, startTs)) learn(evidence)
      // Whoever asks then is told that nobody knows.
      if (told?.index === i && (told.by === 'client' || startTs >= store.safePoint)) {
        learn({ commitTs: told.commitTs, source: `as its ${told.by} is told` })
        isTold ||= told.by === 'client'
      }
      if (outcome === txn.outcome && isTold === txn.isTold) return this.#the(txn)
      // What a client waits for it need not know any more. Late copies of its commit may be there where it gave up.
      const rest = isTold ? { answers: [], commitTs: outcome === 0 ? txn.commitTs : 0 } : {}
      return this.#the({ ...txn, ...rest, outcome, isTold })
    })
    const state = { store, txns: noted, reader: this.#the(reader) }
    return contradiction === undefined ? state : { ...state, wrong: contradiction }
  }

  #outcomes(snapshot: Snapshot, startTs: Timestamp): readonly Evidence[] {
    const { outcomes } = this.#knownOf(snapshot)
    let found = outcomes.get(startTs)
    if (found === undefined) {
      found = [...outcomesOf(snapshot, startTs)]
      outcomes.set(startTs, found)
    }
    return found
  }

  async #call(snapshot: Snapshot, { run }: Call): Promise<Called> {
    const store = new SnapshotStore(snapshot)
    let answer: unknown
    const refusal = await refusalOf(async () => {
      answer = await run(store)
    })
    return { store: this.#snapshot(store.snapshot), answer, refusal }
  }

  *#stepsFrom(state: WorldState, found: Step[]): Steps {
    for (let i = 0; i < state.txns.length; i++) yield* new TxnSteps(this.#plan, state, i, found).all()
    if (this.#plan.hasReader) yield* this.#reads(state, found)
    if (this.#plan.isCollected) yield* this.#collection(state, found)
  }

  /** As in a collection of the server: no lock from before the safe point is left when the first version is removed. */
  *#collection(state: WorldState, found: Step[]): Steps {
    const { safePoint, rows } = state.store
    if (safePoint === 0) {
      const { store } = yield { text: 'raise', run: (to) => to.raiseSafePoint() }
      found.push({ label: `the safe point is raised to ${store.safePoint}`, state: { ...state, store } })
    } else if (rows.every(({ lock }) => lock === undefined || lock.startTs >= safePoint))
      for (let key = 0; key < this.#plan.keys; key++) {
        const { store } = yield { text: `collect ${key}`, run: (to) => to.collect(keyAt(key)) }
        found.push({ label: `${nameOf(key)} is collected`, state: { ...state, store } })
      }
  }

  *#reads(state: WorldState, found: Step[]): Steps {
    const { ts, seen } = state.reader
    if (ts === 0) {
      const { store, answer } = yield { text: 'tso', run: (to) => to.tso() }
      const reader = { ts: answer as Timestamp, seen }
      found.push({ label: `the reader begins at ${reader.ts}`, state: { ...state, store, reader } })
      return
    }
    for (let key = 0; key < this.#plan.keys && ts >= state.store.safePoint; key++) {
      if (seen[key] !== undefined) continue
      const { store, answer, refusal } = yield readCall(key, ts)
      const version = answer as Timestamp
      const label = `the reader finds ${refusal === undefined ? versionText(version) : 'a lock'} at ${nameOf(key)}`
      const reader = refusal === undefined ? { ts, seen: withAt(seen, key, version) } : state.reader
      found.push({ label, state: { ...state, store, reader } })
    }
  }

  // ---- What must hold

  violation({ store, txns, reader, wrong }: WorldState): string | undefined {
    const first = wrong ?? this.#knownOf(store).violation
    if (first !== undefined) return first
    for (const [i, { startTs, outcome = 0, isTold }] of txns.entries()) {
      const name = `T${i + 1}`
      const { keys } = this.#plan.txns[i] as TxnPlan
      if (outcome === 0) continue
      if (outcome <= startTs) return `${name} is committed at ${outcome}, not above its start_ts ${startTs}`
      if (outcome > store.lastTs) return `${name} is committed at ${outcome}, which may be handed out again`
      for (const key of outcome > store.safePoint ? keys : []) {
        const { lock, writes } = store.rows[key] as (typeof store.rows)[number]
        const isThere = writes.some((write) => write.startTs === startTs && write.commitTs === outcome)
        const isLocked = lock?.startTs === startTs && lock.type !== 'pessimistic'
        if (!isThere && !isLocked)
          return `${name} is committed at ${outcome}, and on ${nameOf(key)} there is neither its record nor its lock`
        for (const ts of isTold ? [store.lastTs + 1, TIMESTAMP_MAX] : []) {
          if (lock !== undefined && blocksRead(lock, keyAt(key), ts)) continue
          const version = writes.find((write) => write.commitTs <= ts && isData(write))
          if (version === undefined || version.commitTs < outcome)
            return `${name} was told to be committed at ${outcome}, and a later read of ${nameOf(key)} does not see it`
        }
      }
      for (const [j, other] of txns.entries()) {
        const { outcome: otherTs = 0, startTs: otherStart, grantedAt } = other
        const at = (key: number): number => this.#plan.txns[j]?.keys.indexOf(key) ?? -1
        const isLost = (key: number): boolean => at(key) !== -1 && (grantedAt[at(key)] ?? otherStart) < outcome
        if (j !== i && outcome <= otherTs && keys.some(isLost))
          return `T${j + 1} has written over what ${name} had committed at ${outcome}, and had not seen it`
      }
    }
    for (const [i, { startTs, outcome = 0, seen }] of txns.entries())
      for (const [at, key] of (this.#plan.txns[i]?.reads ?? []).entries()) {
        const others = store.rows[key]?.writes.filter((write) => write.startTs !== startTs) ?? []
        const found = outcome === 0 ? undefined : get(others, outcome)
        if (found !== undefined && (typeof found === 'string' ? 0 : found.commitTs) !== seen[at])
          return `T${i + 1} is committed at ${outcome}, where ${nameOf(key)} is not what it has read`
      }
    for (const [key, { writes }] of store.rows.entries()) {
      const seen = reader.seen[key]
      const found = seen === undefined || reader.ts < store.safePoint ? undefined : get(writes, reader.ts)
      if (found !== undefined && (typeof found === 'string' ? 0 : found.commitTs) !== seen)
        return `a read of ${nameOf(key)} at ${reader.ts} found ${versionText(seen ?? 0)}, and would not find it again`
    }
    return undefined
  }
}

/** The steps that concern one transaction, from one state. */
class TxnSteps {
  readonly #world: WorldPlan
  readonly #plan: TxnPlan
  readonly #state: WorldState
  readonly #index: number
  readonly #found: Step[]
  readonly #txn: Txn
  readonly #name: string
  /** The primary first. */
  readonly #keys: readonly number[]
  /** The keys of each prewrite. */
  readonly #batches: readonly (readonly number[])[]

  constructor(world: WorldPlan, state: WorldState, index: number, found: Step[]) {
    this.#world = world
    this.#state = state
    this.#index = index
    this.#found = found
    this.#txn = state.txns[index] as Txn
    this.#name = `T${index + 1}`
    this.#plan = world.txns[index] as TxnPlan
    this.#keys = this.#plan.keys
    this.#batches = this.#txn.kind === 'one_pc' ? [this.#keys] : this.#keys.map((key) => [key])
  }

  *all(): Steps {
    if (this.#txn.startTs === 0) {
      const { store, answer } = yield { text: 'tso', run: (to) => to.tso() }
      const startTs = answer as Timestamp
      const isPessimistic = this.#plan.isPessimistic ?? false
      this.#then(`${this.#name} begins at ${startTs}`, store, { startTs, forUpdateTs: isPessimistic ? [startTs] : [] })
      return
    }
    if (this.#plan.isPessimistic) yield* this.#locks()
    const areGranted = this.#keys.every((_, i) => this.#txn.grantedAt[i] !== undefined)
    yield* this.#reads()
    const haveRead = this.#readKeys.every((_, i) => this.#txn.seen[i] !== undefined)
    if (haveRead && (areGranted || !this.#plan.isPessimistic)) yield* this.#prewrites()
    yield* this.#commits()
    yield* this.#rollbacks()
    yield* this.#resolutions()
    if (this.#world.hasReader) yield* this.#push()
  }

  /** Its records may be gone. */
  get #isCollected(): boolean {
    return this.#txn.startTs < this.#state.store.safePoint
  }

  /** Adds a step. @param told what somebody knows from now on. */
  #then(label: string, store: Snapshot, change: Partial<Txn> = {}, told?: Timestamp, by: Told['by'] = 'client'): void {
    const { txns, reader, store: before } = this.#state
    const isKnown = told === undefined || (told === this.#txn.outcome && (by === 'resolver' || this.#txn.isTold))
    if (store === before && isKnown && Object.keys(change).length === 0) return
    const changed = txns.map((txn, i) => (i === this.#index ? { ...txn, ...change } : txn))
    const state = { store, txns: changed, reader }
    this.#found.push({
      label,
      state,
      told: told === undefined ? undefined : { index: this.#index, commitTs: told, by },
    })
  }

  #wrong(wrong: string): void {
    this.#found.push({ label: wrong, state: { ...this.#state, wrong } })
  }

  // ---- The client

  /** Locks the keys in their order. What was asked for may arrive again, at any time; and a lock may be lost, or called dead by somebody. */
  *#locks(): Steps {
    const { startTs, forUpdateTs, grantedAt, isTold } = this.#txn
    const next = this.#keys.findIndex((_, i) => grantedAt[i] === undefined)
    for (const [i, key] of this.#keys.entries()) {
      if (next !== -1 && i > next) continue
      for (const ts of forUpdateTs) {
        const primary = keyAt(this.#keys[0] as number)
        const wakeUpMode = this.#plan.isForced ? 'force_lock' : 'normal'
        const request = {
          keys: [keyAt(key)],
          primary,
          startTs,
          forUpdateTs: ts,
          lockTtl: LOCK_TTL_MS,
          wakeUpMode,
        } as const
        const { store, answer, refusal } = yield { text: `lock ${startTs} ${ts} ${key}`, run: (to) => to.lock(request) }
        const at = answer as Timestamp
        const label = `a lock of ${nameOf(key)} for ${this.#name} at ${ts} ${resultText(refusal)}`
        this.#then(`${label}, and its answer is lost`, store)
        if (isTold || i !== next || ts !== forUpdateTs.at(-1)) continue
        if (at === 0) this.#wrong(`${label}, and does not read the latest version`)
        else if (refusal === undefined)
          this.#then(label, store, {
            grantedAt: withAt(grantedAt, i, at),
            forUpdateTs: at > ts ? [...forUpdateTs, at] : forUpdateTs,
          })
        else if (isKvError(refusal, 'write_conflict')) {
          if (forUpdateTs.length === LOCK_TRIES_MAX) continue
          const { store: after, answer: later } = yield { text: 'tso', run: (to) => to.tso() }
          this.#then(`${label}: ${this.#name} asks again at ${later}`, after, {
            forUpdateTs: [...forUpdateTs, later as Timestamp],
          })
        } else if (!isKvError(refusal, 'key_locked')) this.#then(`${label}: its client gives up`, store, {}, 0)
      }
      const lock = this.#state.store.rows[key]?.lock
      if (lock?.startTs !== startTs || lock.type !== 'pessimistic') continue
      const request = { keys: [keyAt(key)], startTs, forUpdateTs: lock.forUpdateTs }
      const text = `unlock ${startTs} ${key}`
      const { store } = yield { text, run: ({ calls }) => calls.pessimisticRollback(request) }
      this.#then(`the pessimistic lock of ${this.#name} on ${nameOf(key)} is removed`, store)
    }
  }

  get #readKeys(): readonly number[] {
    return this.#plan.reads ?? []
  }

  *#reads(): Steps {
    const { seen, startTs } = this.#txn
    for (const [i, key] of this.#readKeys.entries()) {
      if (seen[i] !== undefined) continue
      const { store, answer, refusal } = yield readCall(key, startTs)
      const version = answer as Timestamp
      const label = `${this.#name} finds ${refusal === undefined ? versionText(version) : 'a lock'} at ${nameOf(key)}`
      this.#then(label, store, refusal === undefined ? { seen: withAt(seen, i, version) } : {})
    }
  }

  /** Each prewrite may arrive from the beginning of the transaction on, as often as one likes. */
  *#prewrites(): Steps {
    const { answers, isTold, startTs, kind, grantedAt } = this.#txn
    for (const [i, keys] of this.#batches.entries()) {
      const text = `prewrite ${kind} ${startTs} ${keys} ${grantedAt}`
      const { store, answer, refusal } = yield { text, run: ({ calls }) => calls.prewrite(this.#prewriteRequest(keys)) }
      const label = `a prewrite of ${this.#name} on ${namesOf(keys)} ${resultText(refusal)}`
      const isWasted = refusal !== undefined && this.#plan.reads !== undefined && store.lastTs > WASTED_TS_MAX
      if (!isWasted) this.#then(`${label}, and its answer is lost`, store)
      if (isTold || answers[i] !== undefined) continue
      if (this.#isFailure(refusal)) this.#then(`${label}: its client gives up`, store, {}, 0)
      if (refusal !== undefined) continue
      const { minCommitTs = 0, onePcCommitTs } = answer as PrewriteAnswer
      if ((onePcCommitTs ?? minCommitTs) > this.#maxCommitTs) this.#wrong(`${label}, above its max_commit_ts`)
      if (onePcCommitTs !== undefined) this.#then(label, store, {}, onePcCommitTs)
      else this.#answered(label, store, withAt(answers, i, kind === 'async' ? minCommitTs : 0))
    }
  }

  get #maxCommitTs(): Timestamp {
    const { commitsWithin } = this.#plan
    return commitsWithin === undefined ? TIMESTAMP_MAX : this.#txn.startTs + commitsWithin
  }

  get #readSet(): ReadSet {
    return { keys: this.#readKeys.map(keyAt), ranges: [] }
  }

  #prewriteRequest(keys: readonly number[]): PrewriteRequest {
    const { kind, startTs, grantedAt } = this.#txn
    const granted = keys.map((key) => grantedAt[this.#keys.indexOf(key)] ?? 0)
    const locked = { pessimisticActions: keys.map(() => 'do' as const), forUpdateTsMax: granted }
    return {
      ...(this.#plan.isPessimistic ? { ...locked, forUpdateTs: Math.max(...(grantedAt as Timestamp[])) } : {}),
      mutations: keys.map((key) =>
        this.#plan.isDelete ? { op: 'delete', key: keyAt(key) } : { op: 'put', key: keyAt(key), value: keyAt(key) },
      ),
      primary: keyAt(this.#keys[0] as number),
      startTs,
      lockTtl: LOCK_TTL_MS,
      linearizable: this.#world.isLinearizable,
      tryOnePc: kind === 'one_pc',
      maxCommitTs: this.#maxCommitTs,
      ...(kind === 'one_pc' && this.#plan.reads ? { reads: this.#readSet } : {}),
      ...(kind === 'two_pc' ? { minCommitTs: startTs + 1 } : {}),
      ...(kind === 'async' ? { useAsyncCommit: true } : {}),
      ...(kind === 'async' && keys[0] === this.#keys[0] ? { secondaries: this.#keys.slice(1).map(keyAt) } : {}),
    }
  }

  /** As in the committer: an async commit is done once all are prewritten, at the highest min_commit_ts. */
  #answered(label: string, store: Snapshot, answers: readonly (Timestamp | undefined)[]): void {
    const all = this.#batches.map((_, i) => answers[i] ?? 0)
    const isDone = all.every((answer) => answer > 0)
    this.#then(label, store, { answers }, isDone ? Math.max(...all) : undefined)
  }

  /**
   * Whether the client knows that the transaction is not going to be committed. A copy of a prewrite that met a lock may still succeed later; where
   * that might commit the transaction, the client is one more of those who resolve it.
   */
  #isFailure(refusal: KvError | undefined): boolean {
    if (refusal === undefined) return false
    const mayChange =
      isKvError(refusal, 'key_locked') ||
      isKvError(refusal, 'pessimistic_lock_not_found') ||
      isKvError(refusal, 'ts_below_safe_point') || // A copy before it may have committed, and be collected.
      (isKvError(refusal, 'write_conflict') && refusal.fields.conflictCommitTs === 0)
    return this.#txn.kind === 'two_pc' || !mayChange
  }

  /** Two phases: a commit_ts once all is prewritten, then the primary, as often as one likes; then the others. */
  *#commits(): Steps {
    const { answers, commitTs, isTold, outcome = 0, isValid, startTs } = this.#txn
    const areLocked = this.#batches.every((_, i) => answers[i] !== undefined)
    if (!isTold && areLocked && commitTs === 0) {
      const { store, answer } = yield { text: 'tso', run: (to) => to.tso() }
      this.#then(`${this.#name} is given the commit_ts ${answer}`, store, { commitTs: answer as Timestamp })
    }
    const mustValidate = commitTs > 0 && this.#plan.reads !== undefined && !isValid
    if (mustValidate && !isTold) {
      const request = { ...this.#readSet, startTs, commitTs }
      const text = `validate ${startTs} ${commitTs}`
      const { store, refusal } = yield { text, run: (to) => to.validateReads(request) }
      const label = `the validation of the reads of ${this.#name} at ${commitTs} ${resultText(refusal)}`
      if (refusal === undefined) this.#then(label, store, { isValid: true })
      else if (isKvError(refusal, 'key_locked')) this.#then(label, store)
      else this.#then(`${label}: its client gives up`, store, {}, 0)
    }
    if (commitTs > 0 && !mustValidate) {
      const keys = this.#batches[0] as readonly number[]
      const { store, answer, refusal } = yield this.#commit(keys, commitTs)
      const label = `a commit of ${this.#name} on ${namesOf(keys)} at ${commitTs} ${resultText(refusal)}`
      this.#then(`${label}, and its answer is lost`, store)
      if (isTold) return
      if (refusal === undefined) this.#then(label, store, {}, (answer as { commitTs: Timestamp }).commitTs)
      else if (isKvError(refusal, 'commit_ts_expired')) this.#then(label, store, { commitTs: 0, isValid: false })
      else if (!isKvError(refusal, 'ts_below_safe_point')) this.#then(`${label}: its client gives up`, store, {}, 0)
    }
    if (!isTold || outcome === 0) return
    for (const keys of this.#batches) {
      const { store, refusal } = yield this.#commit(keys, outcome)
      const label = `a commit of ${this.#name} on ${namesOf(keys)} at ${outcome} ${resultText(refusal)}`
      if (refusal !== undefined && !this.#isCollected) this.#wrong(`${label}, though it is committed`)
      else this.#then(label, store)
    }
  }

  #commit(keys: readonly number[], commitTs: Timestamp): Call {
    const { startTs } = this.#txn
    const request = { keys: keys.map(keyAt), startTs, commitTs }
    return { text: `commit ${startTs} ${commitTs} ${keys}`, run: ({ calls }) => calls.commit(request) }
  }

  *#rollbacks(): Steps {
    const { isTold, outcome, startTs } = this.#txn
    if (!isTold || outcome !== 0) return
    for (const keys of this.#batches) {
      const request = { keys: keys.map(keyAt), startTs }
      const { store, refusal } = yield {
        text: `rollback ${startTs} ${keys}`,
        run: ({ calls }) => calls.rollback(request),
      }
      const label = `a rollback of ${this.#name} on ${namesOf(keys)} ${resultText(refusal)}`
      if (refusal !== undefined) this.#wrong(`${label}, though its client was told that it is rolled back`)
      else this.#then(label, store)
    }
  }

  // ---- Those who resolve locks, as the lock resolver does, a call at a time. They know what became of it as soon as it is decided, and for ever.

  *#resolutions(): Steps {
    const { startTs, outcome, kind } = this.#txn
    const [primary = 0, ...secondaries] = this.#keys
    const isFallenBack = kind === 'async' ? yield* this.#askSecondaries() : false
    const { store, answer } = yield {
      text: `status ${startTs} ${primary} ${isFallenBack}`,
      run: ({ calls }) =>
        calls.checkTxnStatus({
          primary: keyAt(primary),
          lockTs: startTs,
          callerStartTs: 0,
          currentTs: TIMESTAMP_MAX,
          rollbackIfNotExist: true,
          forceSyncCommit: isFallenBack,
          verifyIsPrimary: true,
        }),
    }
    const { status, commitTs } = answer as TxnStatus
    const label = `a resolver finds ${this.#name} ${status} at its primary`
    this.#then(label, store, {}, status === 'locked' ? undefined : commitTs, 'resolver')
    if (kind === 'two_pc') yield* this.#cleanup(primary)
    if (outcome === undefined) return
    if (kind === 'async') yield* this.#resolve(primary, outcome, false)
    for (const key of secondaries) yield* this.#resolve(key, outcome, true)
  }

  /** As `check_txn_status`, by those who know that it is over. */
  *#cleanup(primary: number): Steps {
    const { startTs } = this.#txn
    const request = { key: keyAt(primary), startTs, currentTs: TIMESTAMP_MAX }
    const { store, refusal } = yield { text: `cleanup ${startTs}`, run: ({ calls }) => calls.cleanup(request) }
    const commitTs = isKvError(refusal, 'already_committed') ? refusal.fields.commitTs : 0
    this.#then(`a cleanup of ${this.#name} ${resultText(refusal)}`, store, {}, commitTs, 'resolver')
  }

  /** @returns whether it has fallen back to two phases. */
  *#askSecondaries(): Steps<boolean> {
    const { startTs } = this.#txn
    const [primary = 0, ...secondaries] = this.#keys
    const { lock, writes } = this.#state.store.rows[primary] as Snapshot['rows'][number]
    const isSeen =
      (lock?.startTs === startTs && lock.useAsyncCommit) || writes.some((write) => write.startTs === startTs)
    if (!isSeen) return false
    const request = { keys: secondaries.map(keyAt), startTs }
    const { store, answer } = yield {
      text: `secondaries ${startTs}`,
      run: ({ calls }) => calls.checkSecondaryLocks(request),
    }
    const { locks, commitTs } = answer as CheckSecondaryLocksAnswer
    const isDecided = commitTs > 0 || locks.length < secondaries.length
    this.#then(
      `a resolver asks the secondaries of ${this.#name}`,
      store,
      {},
      isDecided ? commitTs : undefined,
      'resolver',
    )
    return locks.some(({ useAsyncCommit }) => !useAsyncCommit)
  }

  *#resolve(key: number, commitTs: Timestamp, isDecided: boolean): Steps {
    const { startTs } = this.#txn
    const request = { txns: [{ startTs, commitTs }], keys: [keyAt(key)], isDecided }
    const { store, refusal } = yield {
      text: `resolve ${startTs} ${commitTs} ${key}`,
      run: ({ calls }) => calls.resolveLock(request),
    }
    const label = `a resolver ends ${this.#name} on ${nameOf(key)}, ${endText(commitTs)}: it ${resultText(refusal)}`
    if (refusal !== undefined && !this.#isCollected) this.#wrong(label)
    else this.#then(label, store)
  }

  /** The reader raises the min_commit_ts of a lock that is in its way. */
  *#push(): Steps {
    const { reader, store: before } = this.#state
    const { startTs } = this.#txn
    const { ts } = reader
    const isInTheWay = this.#keys.some((key) => {
      const lock = before.rows[key]?.lock
      return lock?.startTs === startTs && blocksRead(lock, keyAt(key), ts)
    })
    if (ts === 0 || !isInTheWay) return
    const primary = keyAt(this.#keys[0] as number)
    const request = { primary, lockTs: startTs, callerStartTs: ts, currentTs: ts }
    const { store } = yield { text: `push ${startTs} ${ts}`, run: ({ calls }) => calls.checkTxnStatus(request) }
    this.#then(`the reader pushes ${this.#name}`, store)
    const beat = { primary, startTs, adviseLockTtl: LOCK_TTL_MS, minCommitTs: ts + 1 }
    const beaten = yield { text: `beat ${startTs} ${ts}`, run: ({ calls }) => calls.txnHeartBeat(beat) }
    this.#then(`the reader pushes ${this.#name} by a heart beat`, beaten.store)
  }
}

function* outcomesOf({ rows, safePoint }: Snapshot, startTs: Timestamp): Generator<Evidence> {
  if (startTs < safePoint) return // Others may have ended again what was collected.
  for (const [key, { lock, writes }] of rows.entries()) {
    for (const write of writes) {
      const source = `by its record on ${nameOf(key)}`
      if (write.startTs === startTs) yield { commitTs: write.type === 'rollback' ? 0 : write.commitTs, source }
      else if (write.commitTs === startTs && write.hasOverlappedRollback) yield { commitTs: 0, source }
    }
    // The primary of an async commit. When all its locks stand, it is done.
    if (lock?.startTs !== startTs || !lock.useAsyncCommit || lock.primary[0] !== keyAt(key)[0]) continue
    const locks = [
      lock,
      ...lock.secondaries.map((secondary) => rows.find((_, i) => keyAt(i)[0] === secondary[0])?.lock),
    ]
    if (locks.every((one) => one?.startTs === startTs && one.useAsyncCommit))
      yield { commitTs: Math.max(...locks.map((one) => one?.minCommitTs ?? 0)), source: 'by all its locks' }
  }
}

/** Every version and every lock of a put has its value, and every value is of one of them. */
function damageOf({ rows }: Snapshot): string | undefined {
  for (const [key, { lock, writes, values }] of rows.entries()) {
    const owners = writes.filter(({ type }) => type === 'put').map(({ startTs }) => startTs)
    if (lock?.type === 'put') owners.push(lock.startTs)
    const lost = owners.find((startTs) => !values.includes(startTs))
    if (lost !== undefined) return `the value that was written at ${lost} on ${nameOf(key)} is gone`
    const left = values.find((startTs) => !owners.includes(startTs))
    if (left !== undefined) return `the value that was written at ${left} on ${nameOf(key)} is nobody's`
  }
  return undefined
}

function readCall(key: number, ts: Timestamp): Call {
  return { text: `read ${key} ${ts}`, run: (to) => to.read(keyAt(key), ts)?.commitTs ?? 0 }
}

/** Two characters per number. */
function textOf(numbers: readonly number[]): string {
  let text = ''
  for (const number of numbers) text += String.fromCharCode(number & 0xffff, number >>> 16)
  return text
}

function withAt<T>(list: readonly (T | undefined)[], index: number, value: T): readonly (T | undefined)[] {
  const longer = [...list]
  longer[index] = value
  return longer
}

function namesOf(keys: readonly number[]): string {
  return keys.map(nameOf).join(' and ')
}

function versionText(commitTs: Timestamp): string {
  return commitTs === 0 ? 'nothing' : `the version of ${commitTs}`
}

function endText(commitTs: Timestamp): string {
  return commitTs === 0 ? 'rolled back' : `committed at ${commitTs}`
}

function resultText(refusal: KvError | undefined): string {
  return refusal === undefined ? 'succeeds' : `is refused (${refusal.code})`
}
