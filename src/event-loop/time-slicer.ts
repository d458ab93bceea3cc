import { SLICE_MS } from '../limits.js'

/** Whether the slice of long work of this turn of the event loop is in use. All requests share one slice per turn. */
let isTaken = false
const waiting: (() => void)[] = []

/** @returns undefined when the slice of the present turn was free; the caller has it now. */
function nextSlice(): Promise<void> | undefined {
  if (isTaken) return new Promise((start) => waiting.push(start))
  isTaken = true
  setImmediate(passOn)
  return undefined
}

function passOn(): void {
  const start = waiting.shift()
  isTaken = start !== undefined
  if (start === undefined) return
  setImmediate(passOn)
  start()
}

/** Await this between two long steps that cannot be interrupted. The second one then runs in a later turn's slice. */
export function laterTurn(): Promise<void> {
  if (!isTaken) {
    isTaken = true
    setImmediate(passOn)
  }
  return new Promise((start) => waiting.push(start))
}

/**
 * Runs work of any length without blocking the event loop. The generator yields wherever it may be interrupted, about
 * every millisecond. Work that ends before its first `yield` runs synchronously and returns no promise.
 */
export function runSliced<T>(work: Generator<void, T, void>): T | Promise<T> {
  const step = work.next()
  return step.done ? step.value : finish(work)
}

async function finish<T>(work: Generator<void, T, void>): Promise<T> {
  for (;;) {
    await nextSlice()
    const end = performance.now() + SLICE_MS
    do {
      const step = work.next()
      if (step.done) return step.value
    } while (performance.now() < end)
  }
}

/** Runs all of the work in the present turn. Only for work that is known to be short. */
export function runToEnd<T>(work: Generator<void, T, void>): T {
  for (;;) {
    const step = work.next()
    if (step.done) return step.value
  }
}

/** `runSliced` for a loop that awaits in some of its rounds. Awaiting a settled promise does not end the turn. */
export class TimeSlicer {
  #rounds = 0
  #end = 0

  /** @param roundsAtATime rounds between two readings of the clock. */
  constructor(readonly roundsAtATime = ROUNDS_AT_A_TIME) {}

  /** Call this once per round, and await the result when it is a promise. */
  next(): Promise<void> | undefined {
    if (++this.#rounds % this.roundsAtATime !== 0) return undefined
    const now = performance.now()
    if (now < this.#end) return undefined
    const isFirst = this.#end === 0
    this.#end = now + SLICE_MS
    return isFirst ? undefined : this.#wait()
  }

  async #wait(): Promise<void> {
    await nextSlice()
    this.#end = performance.now() + SLICE_MS
  }
}

/** For rounds of a few microseconds. */
const ROUNDS_AT_A_TIME = 32
