import type { Timestamp } from '../../src/timestamp.js'

/** A request that was answered. Moments are positions in one order of all that happens. */
export interface Answered {
  readonly server: string
  readonly began: number
  readonly ended: number
  /** 0 for an observed timestamp. */
  readonly count: number
  /** The last timestamp, or the one that was observed. */
  readonly last: Timestamp
}

/** What is wrong with a history: timestamps that were handed out twice, and requests that began after an answer and got no higher ones. */
export function violations(history: readonly Answered[]): string[] {
  return [...repeated(history), ...outOfOrder(history)]
}

function repeated(history: readonly Answered[]): string[] {
  const found: string[] = []
  let before: Answered | undefined
  for (const answer of history.filter(({ count }) => count > 0).sort((a, b) => a.last - b.last)) {
    if (before !== undefined && answer.last - answer.count < before.last)
      found.push(`${answer.last} was handed out twice, by ${before.server} and ${answer.server}`)
    before = answer
  }
  return found
}

function outOfOrder(history: readonly Answered[]): string[] {
  const found: string[] = []
  const byEnd = [...history].sort((a, b) => a.ended - b.ended)
  let next = 0
  let highest: Answered | undefined
  for (const answer of history.filter(({ count }) => count > 0).sort((a, b) => a.began - b.began)) {
    for (let ended = byEnd[next]; ended !== undefined && ended.ended < answer.began; ended = byEnd[++next])
      if (highest === undefined || ended.last > highest.last) highest = ended
    if (highest !== undefined && answer.last - answer.count < highest.last)
      found.push(`${answer.server} handed out ${answer.last}, after ${highest.server} had answered ${highest.last}`)
  }
  return found
}

export interface Told {
  readonly atMs: number
  readonly ms: number
}

/** By how much ages have grown faster or slower than time may seem to pass at most, by an eighth, and the longest silence. */
export function unsteadiness(times: readonly Told[]): { fastMs: number; slowMs: number; silentMs: number } {
  const found = { fastMs: 0, slowMs: 0, silentMs: 0 }
  let lowest = Number.POSITIVE_INFINITY
  let highest = Number.NEGATIVE_INFINITY
  let lastMs: number | undefined
  for (const { atMs, ms } of times) {
    const [fast, slow] = [ms - (9 / 8) * atMs, ms - (7 / 8) * atMs]
    lowest = Math.min(lowest, fast)
    highest = Math.max(highest, slow)
    found.fastMs = Math.max(found.fastMs, fast - lowest)
    found.slowMs = Math.max(found.slowMs, highest - slow)
    found.silentMs = Math.max(found.silentMs, atMs - (lastMs ?? atMs))
    lastMs = atMs
  }
  return found
}
