/** Whose code an event runs: a process that can die. What it still has scheduled dies with it. */
export class Owner {
  isAlive = true
  /** Its code does not run before: it stands still. */
  pausedUntilMs = 0
  /** By how much the clock of its machine is wrong. */
  clockOffsetMs = 0
  constructor(readonly name: string) {}
}

export interface ScheduledEvent {
  readonly id: number
  atMs: number
  readonly owner: Owner
  readonly label: string
  /** undefined once it was cancelled. */
  run: (() => void) | undefined
}

/** The loop's own, from before virtual ones take its place. */
export const turn = (
  (setImmediate) => (): Promise<void> =>
    new Promise((resolve) => void setImmediate(resolve))
)(setImmediate)

/** @param due events at least one of which is there; some of them may be cancelled, or their owners dead. @returns an index. */
export type Pick = (due: readonly ScheduledEvent[]) => number

/**
 * One thread of virtual time. Of the events that are due any may be next, whatever order they were scheduled in; time passes only when
 * none is due. Each event runs with all the promise callbacks that follow from it before the next one is picked, so `pick` alone
 * decides what happens.
 */
export class Scheduler {
  /** Milliseconds since the beginning; never goes back. */
  nowMs = 0
  /** Events that were run. */
  steps = 0
  /** Whose code runs now: what it schedules without saying for whom is its own. */
  current: Owner
  /** Of everything that happened so far: two runs with the same one were the same. */
  hash = 0x811c9dc5
  readonly trace: ((line: string) => void) | undefined
  readonly #due: ScheduledEvent[] = []
  readonly #later = new EventHeap()
  readonly #pick: Pick
  #ids = 0

  constructor(pick: Pick, root: Owner, trace?: (line: string) => void) {
    this.#pick = pick
    this.current = root
    this.trace = trace
  }

  schedule(owner: Owner, delayMs: number, label: string, run: () => void): ScheduledEvent {
    const event = { id: this.#ids++, atMs: this.nowMs + Math.max(0, delayMs), owner, label, run }
    if (event.atMs <= this.nowMs) this.#due.push(event)
    else this.#later.push(event)
    return event
  }

  cancel(event: ScheduledEvent): void {
    event.run = undefined
  }

  /** For the code of one event on behalf of another process than the event's own. */
  become(owner: Owner): void {
    this.current = owner
  }

  /** Runs one event. @returns false when there is none. */
  async step(): Promise<boolean> {
    const event = this.#next()
    if (event === undefined) return false
    this.steps++
    this.note(event.id)
    this.note(event.atMs)
    if (this.trace !== undefined)
      this.trace(
        `${String(this.steps).padStart(6)} ${this.nowMs.toFixed(3).padStart(11)} ms  ${event.owner.name}: ${event.label}`,
      )
    this.current = event.owner
    event.run?.()
    await turn()
    return true
  }

  /** Folds a figure into the hash. */
  note(figure: number): void {
    this.hash = Math.imul(this.hash ^ (figure | 0), 0x01000193)
    this.hash = Math.imul(this.hash ^ (((figure * 4096) % 2 ** 31) | 0), 0x01000193)
  }

  noteText(text: string): void {
    for (let i = 0; i < text.length; i++) this.hash = Math.imul(this.hash ^ text.charCodeAt(i), 0x01000193)
  }

  #next(): ScheduledEvent | undefined {
    for (;;) {
      if (this.#due.length === 0) {
        const first = this.#later.pop()
        if (first === undefined) return undefined
        if (!isPending(first)) continue
        this.nowMs = Math.max(this.nowMs, first.atMs)
        this.#due.push(first)
      }
      for (let next = this.#later.first; next !== undefined && next.atMs <= this.nowMs; next = this.#later.first) {
        this.#later.pop()
        this.#due.push(next)
      }
      const index = this.#pick(this.#due)
      const event = this.#due[index] as ScheduledEvent
      const last = this.#due.pop() as ScheduledEvent
      if (event !== last) this.#due[index] = last
      if (!isPending(event)) continue
      if (event.owner.pausedUntilMs <= this.nowMs) return event
      event.atMs = event.owner.pausedUntilMs
      this.#later.push(event)
    }
  }
}

export function isPending({ run, owner }: ScheduledEvent): boolean {
  return run !== undefined && owner.isAlive
}

/** A binary heap, the earliest first. */
class EventHeap {
  readonly #events: ScheduledEvent[] = []

  get first(): ScheduledEvent | undefined {
    return this.#events[0]
  }

  push(event: ScheduledEvent): void {
    const events = this.#events
    let at = events.push(event) - 1
    while (at > 0) {
      const above = (at - 1) >> 1
      if (!isEarlier(event, events[above] as ScheduledEvent)) break
      events[at] = events[above] as ScheduledEvent
      at = above
    }
    events[at] = event
  }

  pop(): ScheduledEvent | undefined {
    const events = this.#events
    const first = events[0]
    const last = events.pop()
    if (last === undefined || last === first) return first
    let at = 0
    for (;;) {
      let below = 2 * at + 1
      if (below >= events.length) break
      const right = below + 1
      if (right < events.length && isEarlier(events[right] as ScheduledEvent, events[below] as ScheduledEvent))
        below = right
      if (!isEarlier(events[below] as ScheduledEvent, last)) break
      events[at] = events[below] as ScheduledEvent
      at = below
    }
    events[at] = last
    return first
  }
}

function isEarlier(a: ScheduledEvent, b: ScheduledEvent): boolean {
  return a.atMs < b.atMs || (a.atMs === b.atMs && a.id < b.id)
}
