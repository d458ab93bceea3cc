import { ConnectionError } from '../../src/client/http/connection-error.js'
import type { PercolatorApi } from '../../src/percolator/api.js'
import type { Faults } from './faults.js'
import type { RunningServer } from './running-server.js'
import type { Owner, Scheduler } from './scheduler.js'
import type { Server } from './server.js'

/** The server that a call goes to. */
type Route = () => Server

/** After how long a client at the latest gives an answer up that does not come. */
const GIVES_UP_MS = 5000
/** How long a client's link is cut: longer than its tries of one call take. */
const CUT_MS_MAX = 2000
/** A call that is late, or a copy of it, arrives within this time. */
const LATE_MS_MAX = 30_000

/** Between the coordinators and the server: each way of each call takes its own time, if it arrives at all. */
export class Network {
  readonly #scheduler: Scheduler
  readonly #faults: Faults
  readonly #route: Route
  /** Not the clients' nor the server's: what is sent arrives when both may be dead. */
  #wire: Owner
  calls = 0
  /** Until when what a client sends is late or lost. */
  readonly #cutUntil = new WeakMap<Owner, number>()

  constructor(scheduler: Scheduler, faults: Faults, route: Route, wire: Owner) {
    this.#scheduler = scheduler
    this.#faults = faults
    this.#route = route
    this.#wire = wire
  }

  /** What was on its way goes nowhere. */
  replaceWire(wire: Owner): void {
    this.#wire.isAlive = false
    this.#wire = wire
  }

  /**
   * One call of a client: answered, or failed by a `ConnectionError`.
   * @param isRepeatable a copy of it may arrive as well.
   */
  call<A>(
    client: Owner,
    label: string,
    isRepeatable: boolean,
    run: (server: RunningServer) => Promise<A> | A,
    request?: unknown,
  ): Promise<A> {
    if (!client.isAlive) return new Promise(() => {})
    const number = ++this.calls
    const scheduler = this.#scheduler
    const faults = this.#faults
    const { trace } = scheduler
    const say =
      trace && ((what: string, detail: unknown) => trace(`${' '.repeat(24)}call ${number} ${what} ${print(detail)}`))
    say?.(`of ${client.name}: ${label}`, request)
    return new Promise((resolve, reject) => {
      const tell = (delayMs: number, what: string, settle: () => void): void => {
        scheduler.schedule(client, delayMs, `call ${number} ${label} ${what}`, settle)
      }
      const fail = (delayMs: number, mayHaveTakenEffect: boolean): void =>
        tell(delayMs, 'fails', () => reject(new ConnectionError('the connection was lost', { mayHaveTakenEffect })))
      const giveUp = (): void => fail(GIVES_UP_MS * faults.random.next() ** 2, true)
      const arrive = (delayMs: number, isHeard: boolean, server = this.#route()): void => {
        scheduler.schedule(this.#wire, delayMs, `call ${number} ${label} arrives`, () => {
          const { running } = server
          const pausedMs = (running?.owner.pausedUntilMs ?? 0) - scheduler.nowMs
          if (pausedMs > 0) return arrive(pausedMs, isHeard, server)
          if (running === undefined) return isHeard ? fail(faults.hopMs(), isTwice) : undefined
          const cutOff = isHeard ? () => fail(faults.hopMs(), true) : () => {}
          server.handle(running, run, cutOff).then(
            (answer) => {
              say?.('answers', answer)
              if (isHeard) tell(faults.hopMs(), 'is answered', () => resolve(answer))
            },
            (error: unknown) => {
              say?.('refuses', String(error))
              if (isHeard) tell(faults.hopMs(), 'is refused', () => reject(error))
            },
          )
        })
      }
      const isTwice = isRepeatable && faults.strikes('call_duplicated')
      if (isTwice) arrive(this.#lateMs(), false)
      const isCut = this.#isCut(client)
      if (faults.strikes('request_lost') || (isCut && faults.random.chance(0.5))) return giveUp()
      if (faults.strikes('call_late') || isCut) {
        arrive(this.#lateMs(), false)
        return giveUp()
      }
      const isAnswerLost = faults.strikes('answer_lost')
      arrive(faults.hopMs(), !isAnswerLost)
      if (isAnswerLost) giveUp()
    })
  }

  #isCut(client: Owner): boolean {
    const { nowMs } = this.#scheduler
    if (this.#faults.strikes('link_cut')) this.#cutUntil.set(client, nowMs + CUT_MS_MAX * this.#faults.random.next())
    return nowMs < (this.#cutUntil.get(client) ?? 0)
  }

  #lateMs(): number {
    return LATE_MS_MAX * this.#faults.random.next() ** 4
  }

  /** Percolator's calls; all of them may be repeated. */
  api(client: Owner): PercolatorApi {
    const through =
      <Q, A>(name: string, call: (server: RunningServer, request: Q) => Promise<A> | A) =>
      (request: Q): Promise<A> =>
        this.call(client, name, true, (server) => call(server, request), request)
    const now = through('now', ({ store }) => store.now())
    return {
      tso: through('tso', ({ store }, count: number) => store.tso(count)),
      now: () => now(undefined),
      get: through('get', ({ store }, request) => store.get(request)),
      batchGet: through('batch_get', ({ store }, request) => store.batchGet(request)),
      scan: through('scan', ({ store }, request) => store.scan(request)),
      prewrite: through('prewrite', ({ prewrite }, request) => prewrite(request)),
      commit: through('commit', ({ store }, request) => store.commit(request)),
      rollback: through('rollback', ({ store }, request) => store.rollback(request)),
      cleanup: through('cleanup', ({ store }, request) => store.cleanup(request)),
      checkTxnStatus: through('check_txn_status', ({ store }, request) => store.checkTxnStatus(request)),
      checkSecondaryLocks: through('check_secondary_locks', ({ store }, request) => store.checkSecondaryLocks(request)),
      txnHeartBeat: through('txn_heart_beat', ({ store }, request) => store.txnHeartBeat(request)),
      acquirePessimisticLock: through('acquire_pessimistic_lock', ({ store }, request) =>
        store.acquirePessimisticLock(request),
      ),
      pessimisticRollback: through('pessimistic_rollback', ({ store }, request) => store.pessimisticRollback(request)),
      validateReads: through('validate_reads', ({ store }, request) => store.validateReads(request)),
      resolveLock: through('resolve_lock', ({ store }, request) => store.resolveLock(request)),
      scanLock: through('scan_lock', ({ store }, request) => store.scanLock(request)),
      mvccGetByKey: through('mvcc_get_by_key', ({ store }, request) => store.mvccGetByKey(request)),
      mvccGetByStartTs: through('mvcc_get_by_start_ts', ({ store }, request) => store.mvccGetByStartTs(request)),
      deleteRange: through('delete_range', async ({ store }, request) => {
        // Until somebody has asked for resolved_ts, a raw client may commit below a delete_range after it.
        const { log } = store
        await log.begin()
        log.prompt?.resolve()
        return store.deleteRange(request)
      }),
    }
  }
}

/** Bytes as text, for people who read a trace. */
function print(detail: unknown): string {
  const text = JSON.stringify(detail, (_, value: unknown) => {
    const isBytes = typeof value === 'object' && value !== null && 'type' in value && value.type === 'Buffer'
    return isBytes && 'data' in value
      ? Buffer.from(value.data as number[])
          .toString()
          .slice(0, 20)
      : value
  })
  return (text ?? '').replaceAll('"', '')
}
