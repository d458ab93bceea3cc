import type { Riders } from '../percolator/riders.js'

/** The keys whose cells the riders change. A cell belongs to the row of its key, so a transaction claims them as it does those that it writes. */
export function* riderKeys({ acks = [], notify = [] }: Riders): Generator<Uint8Array, void, void> {
  for (const { key } of acks) yield key
  for (const { keys } of notify) yield* keys
}

export function riderCount({ acks = [], notify = [] }: Riders): number {
  return notify.reduce((sum, { keys }) => sum + keys.length, acks.length)
}

/** The run has taken place before its one-shot came, so it has seen its fence and nothing later. */
export function seeingFence(riders: Riders | undefined): Riders | undefined {
  return riders && { ...riders, seesFence: true }
}
