import { keyText } from '../bytes/key-text.js'
import type { Riders } from '../percolator/riders.js'
import { nameOfConsumer } from '../store/consumers.js'
import { claimOf } from '../store/system-records.js'

/**
 * The texts of a `Claim` for what the riders change: the rows of cells, and the records of consumers. A transaction claims them as it
 * does the keys that it writes.
 */
export function* riderClaims({ acks = [], notify = [], positions = [] }: Riders): Generator<string, void, void> {
  for (const { key } of acks) yield keyText(key)
  for (const { keys } of notify) for (const key of keys) yield keyText(key)
  for (const { consumer } of positions) yield claimOf(nameOfConsumer(consumer))
}

export function riderCount({ acks = [], notify = [], positions = [] }: Riders): number {
  return notify.reduce((sum, { keys }) => sum + keys.length, acks.length + positions.length)
}

/** The run has taken place before its one-shot came, so it has seen its fence and nothing later. */
export function seeingFence(riders: Riders | undefined): Riders | undefined {
  return riders && { ...riders, seesFence: true }
}
