import { KvError } from '../../../src/client/index.js'
import { Observation, type ObservationPlan } from '../../../src/client/observers/observation.js'
import { COMMIT_OPTIONS_DEFAULT, Coordinator } from '../../../src/coordinator/coordinator.js'
import type {
  ClaimName,
  ClaimRequest,
  Notification,
  ObserversApi,
  Release,
} from '../../../src/observers/rules/observers-api.js'
import type { PercolatorApi, PrewriteAnswer, PrewriteRequest } from '../../../src/percolator/api.js'
import { utf8 } from '../../store/support.js'

export const AWAY = new KvError('overloaded', 'the server is away', {})

export function notification(key: string, fence: number, rest: Partial<Notification> = {}): Notification {
  return { key: utf8(key), fence, commitTs: fence - 1, kind: 'put', attempt: 1, found: true, value: utf8('v'), ...rest }
}

interface Waiting {
  readonly request: ClaimRequest
  readonly answer: (notifications: Notification[]) => void
  readonly fail: (error: unknown) => void
}

/** A database whose answers the test gives. Everything that is asked of it is written down. */
class FakeBackend {
  readonly claims: ClaimRequest[] = []
  readonly extended: string[][] = []
  readonly released: Release[] = []
  readonly prewrites: PrewriteRequest[] = []
  /** Other calls of the protocol. */
  readonly calls: string[] = []
  /** Claims that have no answer. */
  readonly waiting: Waiting[] = []
  onExtend: (claims: readonly ClaimName[]) => Promise<ClaimName[]> = async () => []
  onPrewrite: (request: PrewriteRequest) => Promise<PrewriteAnswer> = async ({ startTs }) => ({
    onePcCommitTs: startTs + 1,
  })
  onBegin: () => void = () => {}
  /** What keys have at later timestamps than that of the claim. */
  later: Uint8Array | undefined = utf8('later')
  #nextTs = 1000

  readonly observers = {
    claim: (_: string, request: ClaimRequest) => {
      this.claims.push(request)
      return new Promise<Notification[]>((answer, fail) => {
        this.waiting.push({ request, answer, fail })
      })
    },
    extend: (_: string, claims: readonly ClaimName[]) => {
      this.extended.push(claims.map(({ key }) => new TextDecoder().decode(key)))
      return this.onExtend(claims)
    },
    release: async (_: string, releases: readonly Release[]) => {
      this.released.push(...releases)
      return { released: releases.length, parked: [] }
    },
  } as unknown as ObserversApi

  readonly coordinator = new Coordinator(
    {
      tso: async () => {
        this.calls.push('tso')
        this.onBegin()
        return this.#nextTs++
      },
      batchGet: async ({ keys }: { keys: readonly Uint8Array[] }) => {
        this.calls.push('batchGet')
        const { later: value } = this
        return { pairs: value === undefined ? [] : keys.map((key) => ({ key, value, commitTs: 5 })) }
      },
      prewrite: (request: PrewriteRequest) => {
        this.prewrites.push(request)
        return this.onPrewrite(request)
      },
    } as unknown as PercolatorApi,
    { ...COMMIT_OPTIONS_DEFAULT, triesMax: 1 },
  )

  readonly during = <T>(call: () => Promise<T>): Promise<T> => call()

  isAway(error: unknown): boolean {
    return error === AWAY
  }

  /** Answers the claim that waits. */
  give(...notifications: Notification[]): void {
    const waiting = this.waiting.shift()
    if (waiting === undefined) throw new Error('no claim waits')
    waiting.answer(notifications)
  }
}

export interface Observed {
  readonly backend: FakeBackend
  readonly observation: Observation<'text'>
  readonly ended: Promise<void>
  readonly errors: unknown[]
  /** Keys of each call of the function. */
  readonly runs: string[][]
}

export function observe(plan: Partial<ObservationPlan<'text'>> = {}, backend = new FakeBackend()): Observed {
  const errors: unknown[] = []
  const runs: string[][] = []
  const { run = () => {}, ...rest } = plan
  const observation = new Observation<'text'>(backend, {
    ...{ name: 'words', worker: 'me', concurrency: 2, batch: 1, leaseMs: 30_000, retries: 10, as: 'text' },
    transaction: { mode: 'optimistic', isolation: 'snapshot', lockWaitMs: 0 },
    onError: (error) => errors.push(error),
    run: (txn, changes) => {
      runs.push(changes.map(({ key }) => key))
      return run(txn, changes)
    },
    ...rest,
  })
  const ended = observation.run()
  ended.catch(() => {})
  return { backend, observation, ended, errors, runs }
}
