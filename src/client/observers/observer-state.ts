import type { ObserverState as ApiState, ObserverOptions, Parked } from '../../percolator/observers-api.js'
import type { Timestamp } from '../../timestamp.js'
import { type As, type Read, readKey } from '../bytes.js'

/** An observer and its counters. */
export interface ObserverState<A extends As = 'text'> extends ObserverOptions {
  readonly name: string
  /** The range as it was given: `prefix`, or `start` and `end`. */
  readonly prefix?: Read<A>
  readonly start?: Read<A>
  readonly end?: Read<A>
  /** Every later commit is run. */
  readonly sinceTs: Timestamp
  readonly state: 'running' | 'paused' | 'backfilling'
  /** Keys that wait, run, or wait after a failed run. */
  readonly pending: number
  readonly pendingIsExact: boolean
  readonly claimed: number
  readonly delayed: number
  readonly parked: number
  /** Age of the oldest change that no run has covered; 0: none. */
  readonly lagMs: number
  /** Committed runs since the start of the server. */
  readonly acks: number
  /** Runs that were refused since the start of the server. */
  readonly conflicts: number
  readonly workers: readonly { readonly worker: string; readonly claimed: number; readonly seenAt: Date }[]
}

/** A key that is given to no worker until it changes again, or `retry`. */
export interface ParkedKey<A extends As = 'text'> {
  readonly key: Read<A>
  /** Timestamp of the newest change. */
  readonly commitTs: Timestamp
  readonly attempts: number
  /** Of the last run. */
  readonly error: string
  readonly parkedAt: Date
}

export function stateOf<A extends As>({ range, workers, ...state }: ApiState, as: A): ObserverState<A> {
  const bounds = Object.entries(range).filter((bound): bound is [string, Uint8Array] => bound[1] !== undefined)
  return {
    ...state,
    ...Object.fromEntries(bounds.map(([name, bytes]) => [name, readKey(bytes, as)])),
    workers: workers.map(({ seenAtMs, ...worker }) => ({ ...worker, seenAt: new Date(seenAtMs) })),
  }
}

export function parkedOf<A extends As>({ key, parkedAtMs, ...cell }: Parked, as: A): ParkedKey<A> {
  return { ...cell, key: readKey(key, as), parkedAt: new Date(parkedAtMs) }
}
