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
