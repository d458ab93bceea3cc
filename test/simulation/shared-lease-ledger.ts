import type { LeaseState } from '../../src/leases/rules/leases-api.js'
import { TIMESTAMP_MAX, type Timestamp } from '../../src/timestamp.js'
import type { Asked, LeaseBooks } from './lease-ledger.js'
import type { Violations } from './violations.js'

/** One grant, as any of the servers has answered it. Times are the scheduler's. */
interface Term {
  readonly holder: string
  readonly fence: Timestamp
  /** When it was first told. */
  readonly toldMs: number
  releasedMs: number
  /** See `LeaseLedger`. */
  overTs: Timestamp
  deletedTs: Timestamp
}

/**
 * The grants of leases by several servers. Their terms end by the timestamps of the oracle, whose clock may step, and answers of two servers
 * overtake each other: so what is held against each other is what was told before somebody asked.
 */
export class SharedLeaseLedger implements LeaseBooks {
  /** By name, in the order of their fences. */
  readonly #terms = new Map<string, Term[]>()
  readonly #askedMs = new Map<Asked, number>()
  readonly #violations: Violations

  constructor(violations: Violations) {
    this.#violations = violations
  }

  asked(asked: Asked, nowMs: number): void {
    this.#askedMs.set(asked, nowMs)
  }

  answered(asked: Asked, { name, holder, fence }: LeaseState, nowMs: number): void {
    const askedMs = this.#askedMs.get(asked) ?? nowMs
    this.#askedMs.delete(asked)
    const terms = this.#terms.get(name) ?? []
    const is = `${name} is ${holder}'s under ${fence}`
    const newer = terms.find((term) => term.fence > fence && term.toldMs < askedMs)
    if (newer !== undefined) this.#violations.add('lease', `${is}, after it was granted under ${newer.fence}`)
    const term = terms.find((each) => each.fence === fence)
    if (term === undefined) {
      const told = { holder, fence, toldMs: nowMs, releasedMs: Number.POSITIVE_INFINITY }
      terms.push({ ...told, overTs: TIMESTAMP_MAX, deletedTs: TIMESTAMP_MAX })
      this.#terms.set(
        name,
        terms.sort((a, b) => a.fence - b.fence),
      )
    } else if (term.holder !== holder) this.#violations.add('lease', `${is}, and ${term.holder}'s`)
    else if (term.releasedMs < askedMs) this.#violations.add('lease', `${is}, after ${holder} had released it`)
  }

  refused(asked: Asked): void {
    this.#askedMs.delete(asked)
  }

  releasing(): void {}

  released(lease: string, fence: Timestamp, nowMs: number): void {
    const term = this.#term(lease, fence)
    if (term !== undefined) term.releasedMs = Math.min(term.releasedMs, nowMs)
  }

  notReleased(): void {}

  over(lease: string, fence: Timestamp, ts: Timestamp, areKeysDeleted: boolean): void {
    const term = this.#term(lease, fence)
    if (term === undefined) return
    term.overTs = Math.min(term.overTs, ts)
    if (areKeysDeleted) term.deletedTs = Math.min(term.deletedTs, ts)
  }

  /** Leases live on without the process that has granted them. */
  restarted(): void {}

  /** It is checked by its commit_ts: `checkLeases`. */
  letIn(): void {}

  get grants(): number {
    return [...this.#terms.values()].reduce((sum, terms) => sum + terms.length, 0)
  }

  termsOf(lease: string): readonly Term[] {
    return this.#terms.get(lease) ?? []
  }

  #term(lease: string, fence: Timestamp): Term | undefined {
    return this.#terms.get(lease)?.find((term) => term.fence === fence)
  }
}
