import { isKvError } from '../../errors/kv-error.js'
import { MAX_RETRIES_DEFAULT } from '../../limits.js'
import type { ObserverState, ObserversApi } from '../../observers/rules/observers-api.js'
import type { GivenRange } from '../../percolator/given-range.js'
import type { As } from '../bytes.js'
import type { Txn } from '../txn.js'
import type { Change } from './change.js'
import { Observation, type ObservationBackend } from './observation.js'
import {
  CONCURRENCY_DEFAULT,
  LEASE_MS_DEFAULT,
  type ObserveBatch,
  type ObserveOne,
  type ObserveOptions,
} from './observe-options.js'
import { observerOptionsOf, type RegistrationOptions } from './registration-options.js'
import { newWorkerName } from './worker-name.js'

/**
 * Registers an observer. Options that are left out keep their values when the observer exists. A backfill runs when the observer
 * is new, not at each start of a worker.
 */
export async function register(
  api: ObserversApi,
  name: string,
  range: GivenRange,
  options: RegistrationOptions,
): Promise<void> {
  const present = await find(api, name)
  const backfill = present === undefined && options.backfill === true ? { backfill: true } : {}
  await api.put(name, { range, ...observerOptionsOf(present ?? {}), ...observerOptionsOf(options), ...backfill })
}

async function find(api: ObserversApi, name: string): Promise<ObserverState | undefined> {
  try {
    return await api.get(name)
  } catch (error) {
    if (isKvError(error, 'not_found')) return undefined
    throw error
  }
}

export function observationOf<A extends As>(
  backend: ObservationBackend,
  name: string,
  run: ObserveOne<A> | ObserveBatch<A>,
  options: ObserveOptions<A>,
  lockWaitMs: number,
): Observation<A> {
  const { mode = 'optimistic', isolation = 'snapshot', batch } = options
  return new Observation<A>(backend, {
    name,
    worker: options.worker ?? newWorkerName(),
    concurrency: options.concurrency ?? CONCURRENCY_DEFAULT,
    batch: batch ?? 1,
    leaseMs: options.leaseMs ?? LEASE_MS_DEFAULT,
    retries: options.retries ?? MAX_RETRIES_DEFAULT,
    as: options.as ?? ('text' as A),
    transaction: { mode, isolation, lockWaitMs },
    run: batch === undefined ? oneByOne(run as ObserveOne<A>) : (run as ObserveBatch<A>),
    onError: options.onError ?? ((error, change) => print(name, error, change)),
  })
}

function oneByOne<A extends As>(run: ObserveOne<A>): ObserveBatch<A> {
  return async (txn: Txn, changes: readonly Change<A>[]) => {
    for (const change of changes) await run(txn, change)
  }
}

function print(name: string, error: unknown, change: Change<As> | undefined): void {
  const where = change === undefined ? '' : `, at ${typeof change.key === 'string' ? change.key : 'a binary key'}`
  console.error(`perkv: observer ${name}${where}:`, error)
}
