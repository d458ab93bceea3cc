import type { LeaseState } from '../../src/leases/rules/leases-api.js'
import { TIMESTAMP_MAX, type Timestamp } from '../../src/timestamp.js'
import type { Violations } from './violations.js'

/** What a restart adds to each term, and some more. */
const LATE_MS_MAX = 4000
/** The longest that anybody asks for. */
export const TTL_MS_MAX = 2000

/** A request for a lease that the server has got. */
export interface Asked {
  readonly lease: string
  readonly holder: string
  readonly ttlMs: number
}

/** One grant, as the server has answered it. Times are the scheduler's. */
interface Term {
  readonly holder: string
  readonly fence: Timestamp
  ttlMs: number
  /** Those of renewals that have failed, one of which may be on disk. */
  readonly failedTtlsMs: Set<number>
  /** A restart may have found the TTL of a renewal that it left without an answer. */
  isTtlKnown: boolean
  /** Until then it is in force, whatever happens. */
  livesUntilMs: number
  /** From then on it is not in force. */
  endsByMs: number
  /** Releases that the server has got and not answered. */
  releases: number
  isReleased: boolean
  /** Its holder has asked again since, or may be granted the lease by what it had asked before. */
  mayHoldAgain: boolean
  /** A timestamp that was handed out when it was over. */
  overTs: Timestamp
  /** One by which the keys that were attached to it had been deleted. */
  deletedTs: Timestamp
}

/** What servers have answered about leases. */
export type LeaseBooks = Pick<LeaseLedger, keyof LeaseLedger>

/** The grants of all leases, held against each other as the server answers them. */
export class LeaseLedger {
  /** By name, in the order of their fences. */
  readonly #terms = new Map<string, Term[]>()
  readonly #unanswered = new Set<Asked>()
  readonly #violations: Violations
  #restartedAtMs = Number.NEGATIVE_INFINITY

  constructor(violations: Violations) {
    this.#violations = violations
  }

  /** A renewal counts from its arrival. */
  asked(asked: Asked, nowMs: number): void {
    this.#unanswered.add(asked)
    const term = this.#newest(asked.lease)
    if (term?.holder !== asked.holder) return
    term.mayHoldAgain = true
    if (!term.isReleased) term.endsByMs = Math.max(term.endsByMs, nowMs + (term.isTtlKnown ? term.ttlMs : TTL_MS_MAX))
  }

  answered(asked: Asked, { name, holder, fence, ttlMs }: LeaseState, nowMs: number): void {
    this.#unanswered.delete(asked)
    const newest = this.#newest(name)
    if (newest === undefined || fence > newest.fence) {
      if (newest !== undefined && nowMs < newest.livesUntilMs)
        this.#violations.add('lease', `${name} was granted to ${holder}, ${newest.livesUntilMs - nowMs} ms too early`)
      const livesUntilMs = nowMs + ttlMs
      // The grant may be one that a kill left without an answer.
      const endsByMs = Math.max(livesUntilMs, this.#restartedAtMs + TTL_MS_MAX + LATE_MS_MAX)
      const known = { failedTtlsMs: new Set<number>(), isTtlKnown: true, releases: 0, isReleased: false }
      const term = {
        holder,
        fence,
        ttlMs,
        livesUntilMs,
        endsByMs,
        ...known,
        mayHoldAgain: false,
        overTs: TIMESTAMP_MAX,
        deletedTs: TIMESTAMP_MAX,
      }
      this.#terms.set(name, [...(this.#terms.get(name) ?? []), term])
      return
    }
    if (fence < newest.fence)
      this.#violations.add('lease', `${name} is ${holder}'s under ${fence}, after it was granted under ${newest.fence}`)
    else if (holder !== newest.holder)
      this.#violations.add('lease', `${name} is ${holder}'s under ${fence}, and ${newest.holder}'s`)
    else if (newest.isReleased)
      this.#violations.add('lease', `${name} was renewed under ${fence}, after ${holder} had released it`)
    newest.ttlMs = ttlMs
    newest.failedTtlsMs.clear()
    newest.isTtlKnown = true
    if (newest.releases === 0) newest.livesUntilMs = nowMs + ttlMs
    newest.endsByMs = Math.max(newest.endsByMs, nowMs + ttlMs)
  }

  /** A request was refused, or has failed. @param heldBy who had the lease, if that is why. */
  refused(asked: Asked, heldBy: string | undefined): void {
    this.#unanswered.delete(asked)
    const newest = this.#newest(asked.lease)
    if (newest?.holder === asked.holder) newest.failedTtlsMs.add(asked.ttlMs)
    if (newest?.holder === heldBy && newest?.isReleased && !newest.mayHoldAgain)
      this.#violations.add('lease', `${asked.lease} is held by ${heldBy}, who had released it`)
  }

  /** Its holder wants to release it. */
  releasing(lease: string, fence: Timestamp, nowMs: number): void {
    const term = this.#term(lease, fence)
    if (term === undefined) return
    term.releases++
    term.livesUntilMs = Math.min(term.livesUntilMs, nowMs)
  }

  /** @param isDeleting the lease has keys that are locked: others are refused until they are deleted. */
  released(lease: string, fence: Timestamp, nowMs: number, isDeleting: boolean): void {
    const term = this.#term(lease, fence)
    if (term === undefined) return
    term.releases--
    term.isReleased = true
    term.mayHoldAgain = isDeleting || this.#mayAsk(lease, term.holder)
    term.endsByMs = Math.min(term.endsByMs, nowMs)
  }

  notReleased(lease: string, fence: Timestamp): void {
    const term = this.#term(lease, fence)
    if (term !== undefined) term.releases--
  }

  /**
   * @param ts was handed out after a release: what is committed later under the fence was not checked.
   * @param areKeysDeleted those that were attached.
   */
  over(lease: string, fence: Timestamp, ts: Timestamp, areKeysDeleted: boolean): void {
    const term = this.#term(lease, fence)
    if (term === undefined) return
    term.overTs = Math.min(term.overTs, ts)
    if (areKeysDeleted) term.deletedTs = Math.min(term.deletedTs, ts)
  }

  /** A new process has loaded the leases. @param found those that are in force. */
  restarted(found: readonly LeaseState[], nowMs: number): void {
    this.#restartedAtMs = nowMs
    for (const lease of this.#terms.keys()) {
      const term = this.#newest(lease)
      if (term === undefined) continue
      this.#checkFound(
        lease,
        term,
        found.find(({ name }) => name === lease),
        nowMs,
      )
      term.releases = 0
      if (term.isReleased) continue
      if (nowMs < term.livesUntilMs) term.livesUntilMs = nowMs + term.ttlMs
      term.isTtlKnown = false
      term.endsByMs = nowMs + TTL_MS_MAX + LATE_MS_MAX
    }
    this.#unanswered.clear()
  }

  #checkFound(lease: string, term: Term, found: LeaseState | undefined, nowMs: number): void {
    const { holder, fence, ttlMs } = term
    const isSame = found?.fence === fence
    if (nowMs < term.livesUntilMs && !isSame)
      this.#violations.add('lease', `${holder} has lost ${lease} under ${fence} by a restart`)
    if (found === undefined || found.fence > fence) return
    if (!isSame) this.#violations.add('lease', `${lease} came back under ${found.fence}, though ${fence} has followed`)
    else if (term.isReleased)
      this.#violations.add('lease', `${lease} came back under ${fence}, though ${holder} had released it`)
    else if (term.isTtlKnown && !this.#ttlsOf(lease, term).has(found.ttlMs))
      this.#violations.add('lease', `${lease} has a TTL of ${found.ttlMs} ms after a restart, and had ${ttlMs} ms`)
  }

  /** Those that may be on disk. */
  #ttlsOf(lease: string, { holder, ttlMs, failedTtlsMs }: Term): ReadonlySet<number> {
    const ttlsMs = new Set([ttlMs, ...failedTtlsMs])
    for (const each of this.#unanswered) if (each.lease === lease && each.holder === holder) ttlsMs.add(each.ttlMs)
    return ttlsMs
  }

  #mayAsk(lease: string, holder: string): boolean {
    return [...this.#unanswered].some((each) => each.lease === lease && each.holder === holder)
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

  /** In their order. What is committed under a fence is below `overTs`. */
  termsOf(lease: string): readonly Pick<Term, 'fence' | 'overTs' | 'deletedTs'>[] {
    return this.#terms.get(lease) ?? []
  }

  #newest(lease: string): Term | undefined {
    return this.#terms.get(lease)?.at(-1)
  }

  #term(lease: string, fence: Timestamp): Term | undefined {
    return this.#terms.get(lease)?.find((term) => term.fence === fence)
  }
}
