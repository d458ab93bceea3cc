import { ConnectionError } from '../../src/client/connection-error.js'
import type { PercolatorApi } from '../../src/percolator/api.js'

export type CallName = Exclude<keyof PercolatorApi, 'withSignal'>

/**
 * What the network does to a call. `lose_request`: it is never carried out. `lose_answer`: it is, and the caller doesn't
 * hear of it. `twice`: carried out two times in a row. `late`: the caller hears of a lost connection, and the request
 * arrives when the test says `deliverLate`. `echo`: arrives as it should, and a copy of it at `deliverLate`.
 */
export type Fate = 'arrive' | 'lose_request' | 'lose_answer' | 'twice' | 'late' | 'echo'

export interface Call {
  readonly name: CallName
  /** How many of this name came before. */
  readonly index: number
  readonly request: unknown
}

/** A network with faults between a coordinator and a real store, and a record of what was sent. */
export class FaultyApi {
  readonly calls: Call[] = []
  readonly api: PercolatorApi
  #isCut = false
  #late: (() => Promise<unknown>)[] = []

  constructor(
    store: PercolatorApi,
    public fateOf: (call: Call) => Fate = () => 'arrive',
  ) {
    const through =
      <Q, A>(name: CallName, call: (request: Q) => Promise<A> | A) =>
      (request: Q): Promise<A> =>
        this.#send(name, request, async () => call(request))
    this.api = {
      tso: through('tso', (count: number) => store.tso(count)),
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

  /** From now on every call is lost before it arrives. */
  cutOff(): void {
    this.#isCut = true
  }

  heal(): void {
    this.#isCut = false
  }

  /** Delivers what is late, in the order in which it was sent. @returns what became of each: its answer or its error. */
  async deliverLate(): Promise<unknown[]> {
    const outcomes: unknown[] = []
    for (const run of this.#late.splice(0)) outcomes.push(await run().catch((error: unknown) => error))
    return outcomes
  }

  async #send<A>(name: CallName, request: unknown, run: () => Promise<A>): Promise<A> {
    const call = { name, index: this.calls.filter((each) => each.name === name).length, request }
    this.calls.push(call)
    if (this.#isCut) throw connectionLost()
    const fate = this.fateOf(call)
    if (fate === 'lose_request') throw connectionLost()
    if (fate === 'late' || fate === 'echo') this.#late.push(run)
    if (fate === 'late') throw connectionLost()
    if (fate === 'twice') await run().catch(() => {})
    const answer = run()
    if (fate !== 'lose_answer') return answer
    await answer.catch(() => {})
    throw connectionLost()
  }
}

function connectionLost(): ConnectionError {
  return new ConnectionError('the connection was lost', { mayHaveTakenEffect: true })
}
