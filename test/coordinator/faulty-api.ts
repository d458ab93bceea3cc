import { vi } from 'vitest'
import { ConnectionError } from '../../src/client/http/connection-error.js'
import type { PercolatorApi } from '../../src/percolator/api.js'
import type { Random } from '../anomalies/random.js'
import type { TappedEngine, WriteGate } from '../store/support.js'

export type CallName = Exclude<keyof PercolatorApi, 'withSignal'>

/**
 * What the network does to a call. `lose_request`: it is never carried out. `lose_answer`: it is, and the caller doesn't
 * hear of it. `twice`: carried out two times in a row. `late`: the caller hears of a lost connection, and the request
 * arrives later: see `copyDelay`. `echo`: arrives as it should, and a copy of it later.
 */
export type Fate = 'arrive' | 'lose_request' | 'lose_answer' | 'twice' | 'late' | 'echo'
export type FaultRates = Readonly<Partial<Record<Exclude<Fate, 'arrive'>, number>>>

export interface Call {
  readonly name: CallName
  /** How many of this name came before. */
  readonly index: number
  readonly request: unknown
}

/** Fates by chance: each fault with the probability of its rate. */
export function seededFates(random: Random, rates: FaultRates): () => Fate {
  return () => {
    let left = random.next()
    for (const [fate, rate] of Object.entries(rates)) {
      left -= rate
      if (left < 0) return fate as Fate
    }
    return 'arrive'
  }
}

/** Where a history is played: its choices, and a store whose writes are held. */
export interface Stage {
  readonly random: Random
  readonly tapped: TappedEngine
  readonly gate: WriteGate
}

/** The longest is longer than any TTL of a short transaction. */
const LEAPS_MS = [1, 1, 1, 5, 30, 200, 4000, 25_000]
const STEPS_MAX = 40_000

/** Requests on their way, of any number of clients: they arrive one by one, in the order that the test picks. */
export class Turns {
  readonly #waiting: { readonly client: number; readonly go: () => void }[] = []

  /** Fulfilled when the request may arrive. */
  readonly wait = (client: number): Promise<void> =>
    new Promise((go) => {
      this.#waiting.push({ client, go })
    })

  get size(): number {
    return this.#waiting.length
  }

  /** By client and then by age, whichever of two clients was faster. @param index below `size`. */
  release(index: number): void {
    this.#waiting.sort((a, b) => a.client - b.client)
    this.#waiting.splice(index, 1)[0]?.go()
  }

  /**
   * Until `goal` is reached and `isOver`: lets requests arrive and LevelDB's writes land, one thing or two at a time,
   * and the (fake) time pass: by leaps now and then, and always when nothing else can happen.
   */
  async play<T>({ random, tapped, gate }: Stage, goal: Promise<T>, isOver = (): boolean => true): Promise<T> {
    let isReached = false
    const reach = (): void => {
      isReached = true
    }
    goal.then(reach, reach)
    await tapped.quiet()
    for (let step = 0; !isReached || !isOver(); step++) {
      if (step > STEPS_MAX) throw new Error('it does not end')
      if (random.chance(0.1)) {
        vi.advanceTimersByTime(random.pick(LEAPS_MS))
        await tapped.quiet()
      }
      const options = (): number => this.size + (gate.held > 0 ? 1 : 0)
      if (options() === 0 && !isReached) {
        if (vi.getTimerCount() === 0) throw new Error('everybody waits for nothing')
        vi.advanceTimersToNextTimer()
      }
      for (let left = random.chance(0.3) ? 2 : 1; left > 0 && options() > 0; left--) {
        const picked = random.below(options())
        if (picked < this.size) this.release(picked)
        else gate.release()
      }
      await tapped.quiet()
    }
    return goal
  }
}

/** A network with faults between a coordinator and a real store, and a record of what was sent. */
export class FaultyApi {
  readonly calls: Call[] = []
  readonly api: PercolatorApi
  /** Calls by what became of them; those that were cut off are lost requests. */
  readonly fates: Record<Fate, number> = { arrive: 0, lose_request: 0, lose_answer: 0, twice: 0, late: 0, echo: 0 }
  /** Awaited before a request is carried out, each copy of it too. */
  gate: (() => Promise<void>) | undefined
  /** After how many more calls a late request or a copy arrives by itself; it waits for `deliverLate` until then. */
  copyDelay: () => number = () => Number.POSITIVE_INFINITY
  #state: 'up' | 'cut' | 'dead' = 'up'
  #late: { readonly run: () => Promise<unknown>; readonly due: number }[] = []
  #running = 0

  constructor(
    store: PercolatorApi,
    public fateOf: (call: Call) => Fate = () => 'arrive',
  ) {
    const through =
      <Q, A>(name: CallName, call: (request: Q) => Promise<A> | A) =>
      (request: Q): Promise<A> =>
        this.#send(name, request, () => this.#carryOut(async () => call(request)))
    const now = through('now', () => store.now())
    this.api = {
      tso: through('tso', (count: number) => store.tso(count)),
      now: () => now(undefined),
      get: through('get', store.get),
      batchGet: through('batchGet', store.batchGet),
      scan: through('scan', store.scan),
      prewrite: through('prewrite', store.prewrite),
      commit: through('commit', store.commit),
      rollback: through('rollback', store.rollback),
      cleanup: through('cleanup', store.cleanup),
      checkTxnStatus: through('checkTxnStatus', store.checkTxnStatus),
      checkSecondaryLocks: through('checkSecondaryLocks', store.checkSecondaryLocks),
      txnHeartBeat: through('txnHeartBeat', store.txnHeartBeat),
      acquirePessimisticLock: through('acquirePessimisticLock', store.acquirePessimisticLock),
      pessimisticRollback: through('pessimisticRollback', store.pessimisticRollback),
      validateReads: through('validateReads', store.validateReads),
      resolveLock: through('resolveLock', store.resolveLock),
      scanLock: through('scanLock', store.scanLock),
      mvccGetByKey: through('mvccGetByKey', store.mvccGetByKey),
      mvccGetByStartTs: through('mvccGetByStartTs', store.mvccGetByStartTs),
      deleteRange: through('deleteRange', store.deleteRange),
    }
  }

  get isUp(): boolean {
    return this.#state === 'up'
  }
  /** Requests that are being carried out, or wait at the gate. */
  get running(): number {
    return this.#running
  }
  /** Calls whose answer never came. */
  get lost(): number {
    return this.fates.lose_request + this.fates.lose_answer + this.fates.late
  }

  /** From now on every call is lost before it arrives. */
  cutOff(): void {
    if (this.#state !== 'dead') this.#state = 'cut'
  }

  heal(): void {
    if (this.#state !== 'dead') this.#state = 'up'
  }

  /** As when the client's process dies: from now on no call is carried out, and none is answered. */
  kill(): void {
    this.#state = 'dead'
  }

  /** The api with a `withSignal`: an abort ends the call for its caller, and the request goes on. */
  abortable(): PercolatorApi {
    const bound = (signal: AbortSignal): PercolatorApi => {
      const entries = Object.entries(this.api).map(([name, call]) => [
        name,
        (request: never) => abortedBy(signal, call as (request: never) => Promise<unknown>, request),
      ])
      return Object.fromEntries(entries)
    }
    return { ...this.api, withSignal: bound }
  }

  /** Delivers what is late, in the order in which it was sent. @returns what became of each: its answer or its error. */
  async deliverLate(): Promise<unknown[]> {
    const outcomes: unknown[] = []
    for (const { run } of this.#late.splice(0)) outcomes.push(await run().catch((error: unknown) => error))
    return outcomes
  }

  async #send<A>(name: CallName, request: unknown, run: () => Promise<A>): Promise<A> {
    if (this.#state === 'dead') return new Promise(() => {})
    const call = { name, index: this.calls.filter((each) => each.name === name).length, request }
    this.calls.push(call)
    this.#deliverDue()
    const fate = this.isUp ? this.fateOf(call) : 'lose_request'
    this.fates[fate]++
    if (fate === 'lose_request') throw connectionLost()
    if (fate === 'late' || fate === 'echo') this.#late.push({ run, due: this.calls.length + this.copyDelay() })
    if (fate === 'late') throw connectionLost()
    if (fate === 'twice') await run().catch(() => {})
    const answer = run()
    if (fate !== 'lose_answer') return this.#heard(await answer)
    await answer.catch(() => {})
    throw connectionLost()
  }

  /** Who is dead by now hears nothing. */
  #heard<A>(answer: A): A | Promise<A> {
    return this.#state === 'dead' ? new Promise(() => {}) : answer
  }

  #deliverDue(): void {
    const isDue = ({ due }: { readonly due: number }): boolean => due <= this.calls.length
    const due = this.#late.filter(isDue)
    this.#late = this.#late.filter((each) => !isDue(each))
    for (const { run } of due) run().catch(() => {})
  }

  async #carryOut<A>(run: () => Promise<A>): Promise<A> {
    this.#running++
    try {
      await this.gate?.()
      return await run()
    } finally {
      this.#running--
    }
  }
}

async function abortedBy<Q, A>(signal: AbortSignal, call: (request: Q) => Promise<A>, request: Q): Promise<A> {
  signal.throwIfAborted()
  let abort = (): void => {}
  const aborted = new Promise<never>((_, reject) => {
    abort = () => reject(signal.reason)
    signal.addEventListener('abort', abort)
  })
  const answer = call(request)
  return Promise.race([answer, aborted]).finally(() => signal.removeEventListener('abort', abort))
}

function connectionLost(): ConnectionError {
  return new ConnectionError('the connection was lost', { mayHaveTakenEffect: true })
}
