import { Database } from '../../src/database/database.js'
import { isKvError } from '../../src/errors/kv-error.js'
import { DEFAULT_LIMITS } from '../../src/limits.js'
import { Clock } from '../../src/oracle/clock.js'
import { type Answering, asksBy } from '../../src/oracle/signed-ask.js'
import { AnswerBudget } from '../../src/store/answer-budget.js'
import { NEWEST_FORMAT } from '../../src/store/table/format/format-row.js'
import { joinTable } from '../../src/store/table/join-table.js'
import { UnusableTable } from '../../src/store/table/layout/unusable-table.js'
import { LOGICAL_PER_MS } from '../../src/timestamp.js'
import type { Faults } from './faults.js'
import type { RunningServer } from './running-server.js'
import type { Owner, Scheduler } from './scheduler.js'
import { type SharedTable, TableLink } from './shared-table.js'
import type { Violations } from './violations.js'

/** After how long a server at the latest gives another one up. */
const GIVES_UP_MS = 2000

/** A server among others, for what they ask each other. */
interface Reachable {
  readonly owner: Owner
  readonly answers: readonly Answering[]
}

/** Servers on one table, each with the whole of what a real one has below HTTP. */
export class SharedServers {
  readonly #byUrl = new Map<string, Reachable>()

  constructor(
    readonly scheduler: Scheduler,
    readonly faults: Faults,
    readonly table: SharedTable,
    readonly violations: Violations,
  ) {}

  /** A process that joins the others. */
  async open(owner: Owner, url: string): Promise<RunningServer> {
    const { faults, violations } = this
    const clock = new Clock({})
    const { store, member } = await joinTable(new TableLink(this.table, owner), {
      ...{
        url,
        clock,
        registeringMs: faults.profile.registeringMs,
        logs: faults.profile.logs,
        answers: new AnswerBudget(DEFAULT_LIMITS),
        onRole: () => {},
        onTimestamps: () => {},
        onEnd: (message) => violations.add('defect', message),
        serving: { place: 'tests', newest: NEWEST_FORMAT },
      },
      asksOf: (secret) => ({
        ask: asksBy(secret, (name, target, body, _, signal) => this.#post(owner, name, target, body, signal)),
        close: () => {},
      }),
    })
    this.#byUrl.set(url, { owner, answers: member.answers })
    const { claimsMax } = faults.profile.observers
    const database = await Database.open(store, {
      limits: { ...DEFAULT_LIMITS, ...faults.profile.feed, observersMax: 8, claimsMax, leasesMax: 8 },
      registry: member.registry,
      gc: { lifeTimeMs: 0, intervalMs: 0 }, // It collects when a client asks.
      onError: (message, error) => {
        if (!isAway(error)) violations.add('defect', `${message}: ${error instanceof Error ? error.stack : error}`)
      },
    })
    const { observers, changes, coordinator } = database
    return {
      ...{ owner, store, observers, changes, leases: database.leases },
      resolver: coordinator.resolver,
      prewrite: (request) => database.prewrite(request),
      oneShots: { run: (request) => database.transact(request) },
      pins: { create: (wanted) => database.createPin(wanted), remove: (pin) => database.removePin(pin) },
      collect: (isByHand, behindMs) =>
        isByHand
          ? database.gc(Math.max(1, store.time.clock() - behindMs * LOGICAL_PER_MS))
          : database.collect({ lifeTimeMs: behindMs }),
      close: () => database.close(),
    }
  }

  /** Asks of one server to another take their time, and get lost, each way. */
  #post(owner: Owner, name: string, url: string, body: Uint8Array, signal: AbortSignal): Promise<Uint8Array> {
    const { scheduler, faults, table } = this
    return new Promise((resolve, reject) => {
      const tell = (delayMs: number, settle: () => void): void =>
        void scheduler.schedule(owner, delayMs, `${name} of ${url}`, settle)
      const fail = (delayMs: number): void => tell(delayMs, () => reject(new Error('the connection was lost')))
      signal.addEventListener('abort', () => reject(signal.reason))
      const arrive = (): void => {
        const target = this.#byUrl.get(url)
        if (target?.owner.isAlive !== true) return void fail(faults.hopMs())
        const pausedMs = target.owner.pausedUntilMs - scheduler.nowMs
        if (pausedMs > 0) return void scheduler.schedule(table.nature, pausedMs, `${name} waits`, arrive)
        scheduler.become(target.owner)
        const answering = target.answers.find((each) => each.name === name)
        Promise.resolve(answering?.answer(body)).then(
          (answer) => {
            if (faults.strikes('post_lost')) return fail(GIVES_UP_MS * faults.random.next())
            tell(faults.hopMs(), () => (answer === undefined ? reject(new Error('refused')) : resolve(answer)))
          },
          () => fail(faults.hopMs()),
        )
      }
      if (faults.strikes('post_lost')) return fail(GIVES_UP_MS * faults.random.next())
      scheduler.schedule(table.nature, faults.hopMs(), `${name} arrives at ${url}`, arrive)
    })
  }
}

/** A table that does not answer, for a while. */
export function isAway(error: unknown): boolean {
  return isKvError(error, 'storage_unavailable') || error instanceof UnusableTable
}
