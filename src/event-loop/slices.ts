import { SLICE_MS } from '../limits.js'

/** One slice of long work per turn of the event loop, whoever it is for. */
let isTaken = false
const waiting: (() => void)[] = []

/** @returns undefined where the slice of the present turn is free. */
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

/** Between two steps that each take their time and cannot be interrupted: what comes then runs in a slice of a later turn. */
export function laterTurn(): Promise<void> {
  if (!isTaken) {
    isTaken = true
    setImmediate(passOn)
  }
  return new Promise((start) => waiting.push(start))
}

/**
 * Runs work of any length without keeping the event loop from other requests. The generator yields wherever it may be
 * interrupted, every millisecond or so. Work that ends before its first `yield` runs on the spot, without a promise.
 */
export function inSlices<T>(work: Generator<void, T, void>): T | Promise<T> {
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

/** Runs all of the work now, for callers that know it to be short. */
export function atOnce<T>(work: Generator<void, T, void>): T {
  for (;;) {
    const step = work.next()
    if (step.done) return step.value
  }
}

/** The same as `inSlices` for a loop that awaits something in some of its rounds: promises alone end no turn. */
export class Slices {
  #rounds = 0
  #end = 0

  /** @param roundsAtATime between two looks at the clock. */
  constructor(readonly roundsAtATime = ROUNDS_AT_A_TIME) {}

  /** To be awaited once per round where it is a promise. */
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

/** Rounds that take microseconds. */
const ROUNDS_AT_A_TIME = 32
