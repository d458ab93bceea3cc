import type { ObserverState as ApiState, Parked } from '../../observers/rules/observers-api.js'
import { type As, type Read, readKey } from '../bytes.js'
import { type ReadRange, readRange } from '../key-range.js'

export interface ObserverState<A extends As = 'text'> extends Omit<ApiState, 'range' | 'workers'>, ReadRange<A> {
  readonly workers: readonly { readonly worker: string; readonly claimed: number; readonly seenAt: Date }[]
}

/** A key that is given to no worker until it changes again, or `retry` is called. */
export interface ParkedKey<A extends As = 'text'> extends Omit<Parked, 'key' | 'parkedAtMs'> {
  readonly key: Read<A>
  readonly parkedAt: Date
}

export function stateOf<A extends As>({ range, workers, ...state }: ApiState, as: A): ObserverState<A> {
  return {
    ...state,
    ...readRange(range, as),
    workers: workers.map(({ seenAtMs, ...worker }) => ({ ...worker, seenAt: new Date(seenAtMs) })),
  }
}

export function parkedOf<A extends As>({ key, parkedAtMs, ...cell }: Parked, as: A): ParkedKey<A> {
  return { ...cell, key: readKey(key, as), parkedAt: new Date(parkedAtMs) }
}
