import type { WaitForEntry } from '../../../errors/registry.js'
import { backgroundTimer } from '../../../event-loop/background-timer.js'
import type { Timer } from '../../../oracle/waiting-requests.js'
import { EDGE_BYTES_MAX } from '../../lock-waits.js'
import type { ReportToLeader } from './report-to-leader.js'
import { costOf, ENDED_MAX, type NumberedWait, REPORT_BYTES_MAX } from './wait-report.js'

/** How often a continuing wait is reported again, so that the next leader knows it too. */
const RENEW_MS = 1000
/** Pause between two reports, unless one is full. */
const GATHER_MS = 20
/** Pause after a report without an answer. */
const PAUSE_MS = 100

export interface WaitReportsOptions {
  readonly send: ReportToLeader
  readonly timer?: Timer | undefined
  readonly nowMs?: (() => number) | undefined
}

interface Wait extends NumberedWait {
  readonly onCircle: (circle: readonly WaitForEntry[]) => void
  sentMs: number
}

/**
 * Reports the waits of this process to the server that finds deadlocks: when they begin, again every second, and when they end.
 * One report is under way at a time; later events form the next one. A lost report does no harm: the next one makes up for it,
 * and an unreported wait ends by its time-out.
 */
export class WaitReports {
  readonly #send: ReportToLeader
  readonly #timer: Timer
  readonly #nowMs: () => number
  /** In the order in which they began. */
  readonly #unsent = new Map<number, Wait>()
  /** In the order in which they were reported. */
  readonly #sent = new Map<number, Wait>()
  readonly #ended = new Set<number>()
  #ids = 0
  #isSending = false
  #isClosed = false
  #stopTimer: (() => void) | undefined

  constructor({ send, timer = backgroundTimer, nowMs = () => performance.now() }: WaitReportsOptions) {
    this.#send = send
    this.#timer = timer
    this.#nowMs = nowMs
  }

  /**
   * @param onCircle called with the circle, as `waitCircle` returns it, when the leader finds that the wait closes one.
   * @returns a function that ends the wait, which must be called.
   */
  begin(wait: WaitForEntry, onCircle: Wait['onCircle']): () => void {
    const id = ++this.#ids
    this.#unsent.set(id, { id, wait, onCircle, sentMs: 0 })
    this.#pump()
    return () => {
      this.#unsent.delete(id)
      if (!this.#sent.delete(id)) return
      this.#ended.add(id)
      this.#pump()
    }
  }

  /** The waits of this process: at most `limit`, and fewer when their keys are long. */
  waits(limit: number): WaitForEntry[] {
    const waits: WaitForEntry[] = []
    let bytes = 0
    for (const some of [this.#sent, this.#unsent])
      for (const { wait } of some.values()) {
        if (waits.length >= limit || bytes >= EDGE_BYTES_MAX) return waits
        waits.push(wait)
        bytes += wait.key.length
      }
    return waits
  }

  close(): void {
    this.#isClosed = true
    this.#stopTimer?.()
  }

  #pump(): void {
    if (this.#isSending || this.#isClosed) return
    this.#isSending = true
    this.#stopTimer?.()
    void this.#report().then((pauseMs) => {
      const again = (): void => {
        this.#isSending = false
        this.#pumpWhenDue()
      }
      if (pauseMs === 0) again()
      else this.#timer(pauseMs, again)
    })
  }

  #pumpWhenDue(): void {
    const [oldest] = this.#sent.values()
    if (this.#unsent.size > 0 || this.#ended.size > 0) this.#pump()
    else if (oldest !== undefined && !this.#isClosed) {
      const dueMs = Math.max(0, oldest.sentMs + RENEW_MS - this.#nowMs())
      this.#stopTimer = this.#timer(dueMs, () => this.#pump())
    }
  }

  async #report(): Promise<number> {
    await undefined // Waits of the same turn share a report.
    const { waits, isFull } = this.#take()
    const ended = [...this.#ended].slice(0, ENDED_MAX)
    if (waits.length === 0 && ended.length === 0) return 0
    for (const id of ended) this.#ended.delete(id)
    try {
      const circles = await this.#send({ waits: waits.map(({ id, wait }) => ({ id, wait })), ended })
      if (circles === undefined) {
        this.#forgetSent()
        return 0
      }
      for (const { id, circle } of circles) this.#sent.get(id)?.onCircle(circle)
      return isFull || this.#ended.size > 0 ? 0 : GATHER_MS
    } catch {
      this.#forgetSent()
      return PAUSE_MS
    }
  }

  /** New waits, and those due for renewal, as far as one report holds them. They count as reported. */
  #take(): { readonly waits: readonly Wait[]; readonly isFull: boolean } {
    const nowMs = this.#nowMs()
    const waits: Wait[] = []
    let bytes = 0
    const fits = ({ wait }: Wait): boolean => {
      bytes += costOf(wait)
      return bytes <= REPORT_BYTES_MAX
    }
    let isFull = false
    for (const some of [this.#unsent, this.#sent]) {
      for (const each of some.values()) {
        if (some === this.#sent && each.sentMs + RENEW_MS > nowMs) break
        isFull = !fits(each)
        if (isFull) break
        waits.push(each)
      }
      if (isFull) break
    }
    for (const each of waits) {
      this.#unsent.delete(each.id)
      this.#sent.delete(each.id)
      each.sentMs = nowMs
      this.#sent.set(each.id, each)
    }
    return { waits, isFull }
  }

  /** The server that keeps the graph may know none of them. Ended waits expire there by themselves. */
  #forgetSent(): void {
    for (const [id, wait] of this.#sent) this.#unsent.set(id, wait)
    this.#sent.clear()
    this.#ended.clear()
  }
}
