import type { LeaseState } from '../../src/percolator/leases-api.js'
import type { Timestamp } from '../../src/timestamp.js'
import type { Violations } from './violations.js'

/** What a restart adds to each term, and some more. */
const LATE_MS_MAX = 4000
/** The longest that anybody asks for. */
export const TTL_MS_MAX = 2000

/** One grant, as the server has answered it. Times are the scheduler's. */
interface Term {
  readonly holder: string
  readonly fence: Timestamp
  ttlMs: number
  /** Until then it is in force, whatever happens. */
  livesUntilMs: number
  /** From then on it is not in force. */
  endsByMs: number
  isReleased: boolean
}

/** The grants of all leases, held against each other as the server answers them. */
export class LeaseLedger {
  /** By name, in the order of their fences. */
  readonly #terms = new Map<string, Term[]>()
  readonly #violations: Violations
  #restartedAtMs = Number.NEGATIVE_INFINITY

  constructor(violations: Violations) {
    this.#violations = violations
  }

  /** A renewal counts from its arrival. */
  asked(lease: string, holder: string, nowMs: number): void {
    const term = this.#newest(lease)
    if (term?.holder === holder) term.endsByMs = Math.max(term.endsByMs, nowMs + TTL_MS_MAX)
  }

  answered({ name, holder, fence, ttlMs }: LeaseState, nowMs: number): void {
    const newest = this.#newest(name)
    if (newest === undefined || fence > newest.fence) {
      if (newest !== undefined && nowMs < newest.livesUntilMs)
        this.#violations.add('lease', `${name} was granted to ${holder}, ${newest.livesUntilMs - nowMs} ms too early`)
      const livesUntilMs = nowMs + ttlMs
      // The grant may be one that a kill left without an answer.
      const endsByMs = Math.max(livesUntilMs, this.#restartedAtMs + TTL_MS_MAX + LATE_MS_MAX)
      const term = { holder, fence, ttlMs, livesUntilMs, endsByMs, isReleased: false }
      this.#terms.set(name, [...(this.#terms.get(name) ?? []), term])
      return
    }
    if (fence < newest.fence)
      this.#violations.add('lease', `${name} is ${holder}'s under ${fence}, after it was granted under ${newest.fence}`)
    else if (holder !== newest.holder)
      this.#violations.add('lease', `${name} is ${holder}'s under ${fence}, and ${newest.holder}'s`)
    newest.ttlMs = ttlMs
    newest.livesUntilMs = nowMs + ttlMs
    newest.endsByMs = Math.max(newest.endsByMs, nowMs + ttlMs)
  }

  /** Its holder wants to release it. */
  releasing(lease: string, fence: Timestamp, nowMs: number): void {
    const term = this.#term(lease, fence)
    if (term !== undefined) term.livesUntilMs = Math.min(term.livesUntilMs, nowMs)
  }

  released(lease: string, fence: Timestamp, nowMs: number): void {
    const term = this.#term(lease, fence)
    if (term === undefined) return
    term.isReleased = true
    term.endsByMs = Math.min(term.endsByMs, nowMs)
  }

  /** A new process has loaded the leases. */
  restarted(nowMs: number): void {
    this.#restartedAtMs = nowMs
    for (const lease of this.#terms.keys()) {
      const term = this.#newest(lease)
      if (term === undefined || term.isReleased) continue
      if (nowMs < term.livesUntilMs) term.livesUntilMs = nowMs + term.ttlMs
      term.endsByMs = nowMs + term.ttlMs + LATE_MS_MAX
    }
  }

  /** A transaction was let in. @param arrivedMs when the server got it. */
  letIn(lease: string, fence: Timestamp, arrivedMs: number): void {
    const term = this.#term(lease, fence)
    if (term !== undefined && arrivedMs > term.endsByMs)
      this.#violations.add('lease', `${lease} under ${fence} had ended ${arrivedMs - term.endsByMs} ms before a commit`)
  }

  get grants(): number {
    return [...this.#terms.values()].reduce((sum, terms) => sum + terms.length, 0)
  }

  fencesOf(lease: string): readonly Timestamp[] {
    return (this.#terms.get(lease) ?? []).map(({ fence }) => fence)
  }

  #newest(lease: string): Term | undefined {
    return this.#terms.get(lease)?.at(-1)
  }

  #term(lease: string, fence: Timestamp): Term | undefined {
    return this.#terms.get(lease)?.find((term) => term.fence === fence)
  }
}
