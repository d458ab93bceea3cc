import { KvError } from '../errors/kv-error.js'

const LEAD_MS_MIN = 4
const LEAD_MS_MAX = 2000

/** Thrown when the oracle has reached a chosen commit_ts before all keys were locked. */
export class StampPassed extends Error {
  override readonly name = 'StampPassed'
}

/**
 * By how much a chosen commit_ts is ahead of the oracle: about twice the time that the prewrites of such transactions take. Too
 * little costs another prewrite, too much a wait.
 */
export class StampLead {
  #ms = 10

  get ms(): number {
    return this.#ms
  }

  wasEnough(tookMs: number): void {
    this.#ms = bounded((7 * this.#ms + 2 * tookMs) / 8)
  }

  wasTooShort(): void {
    this.#ms = bounded(2 * this.#ms)
  }
}

function bounded(ms: number): number {
  return Math.ceil(Math.min(LEAD_MS_MAX, Math.max(LEAD_MS_MIN, ms)))
}

export function storeTooSlow(tries: number): KvError<'overloaded'> {
  const detail = `${tries} commit timestamps passed while the versionstamped keys were being locked`
  return new KvError('overloaded', detail, {})
}
