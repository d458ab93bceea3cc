import { entryCost, pairBytes } from '../../../bytes/answer-size.js'
import { printKey } from '../../../errors/print-key.js'
import type { Pair, ValuedPair } from '../../../percolator/api.js'
import { CorruptRecord } from '../../../percolator/codec/key.js'
import { withEnd } from '../../../percolator/version-end.js'
import type { Timestamp } from '../../../timestamp.js'
import type { AnswerLease } from '../../answer-budget.js'
import type { EngineReader } from '../engine/engine.js'
import { readValues } from './row-reader.js'

/** Values in the first read. Later reads take about VALUES_BYTES, by the mean size so far. */
const VALUES_AT_FIRST = 16
const VALUES_AT_A_TIME = 256
const VALUES_BYTES = 4 * 1024 * 1024

type Version = Parameters<typeof readValues>[1][number]

/**
 * Reads the values of versions in parts, and counts each part before it reads the next.
 * @param costOf cost of a pair beyond the cost already counted for its version.
 * @param bytesMax stops after this many bytes of keys and values; undefined: only the lease bounds the answer.
 * @returns whether it stopped before the end.
 */
export async function readPairsInto(
  pairs: Pair[],
  engine: EngineReader,
  found: readonly Version[],
  costOf: (pair: Pair, version: Version) => number,
  lease: AnswerLease,
  bytesMax = Number.POSITIVE_INFINITY,
): Promise<boolean> {
  let bytes = 0
  for (let from = 0; from < found.length; ) {
    const some = found.slice(from, from + (from === 0 ? VALUES_AT_FIRST : valuesAtATime(bytes / from)))
    const read = await readPairs(engine, some)
    let cost = 0
    for (const [i, pair] of read.entries()) {
      pairs.push(pair)
      bytes += pairBytes(pair)
      cost += costOf(pair, some[i] as Version)
      if (bytes >= bytesMax) return from + i + 1 < found.length
    }
    lease.grow(cost)
    from += some.length
  }
  return false
}

function valuesAtATime(bytes: number): number {
  return Math.min(VALUES_AT_A_TIME, Math.max(1, Math.floor(VALUES_BYTES / Math.max(1, bytes))))
}

export function longValueCost({ value }: Pair, { write }: Version): number {
  return write.shortValue === undefined && value !== undefined ? entryCost(value) : 0
}

export async function readPairs(engine: EngineReader, found: readonly Version[]): Promise<ValuedPair[]> {
  const values = await readValues(engine, found)
  return found.map(({ key, write }, i) => {
    const value = values[i]
    if (value === undefined) throw lostValue(key, write.startTs)
    return withEnd({ key, value, commitTs: write.commitTs }, write)
  })
}

export function lostValue(key: Uint8Array, startTs: Timestamp): CorruptRecord {
  return new CorruptRecord(
    `the value of ${printKey(key)} written at ${startTs} is missing`,
    `a value written at ${startTs} is missing`,
  )
}
