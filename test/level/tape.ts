import { deepStrictEqual, doesNotThrow, fail, notStrictEqual, ok, strictEqual, throws } from 'node:assert'
import { test } from 'vitest'

type Body = (t: Assertions) => unknown

/** As much of tape as the suite of abstract-level uses, on vitest. */
export interface Tape {
  (name: string, body: Body): void
  (name: string, options: object, body: Body): void
}

/** Of one test, which ends when as many as planned are made, when it calls `end`, or when its promise is fulfilled. */
class Assertions {
  #made = 0
  #planned: number | undefined
  #finish: () => void = () => {}
  readonly #ended = new Promise<void>((resolve) => {
    this.#finish = resolve
  })
  #failure: unknown

  readonly plan = (count: number): void => {
    this.#planned = count
    if (count === 0) this.#finish()
  }
  readonly end = (error?: unknown): void => {
    if (error) this.#failure ??= error
    this.#finish()
  }
  readonly pass = (): void => this.#assert(() => {})
  readonly fail = (message?: string): void => this.#assert(() => fail(message))
  readonly ok = (value: unknown, message?: string): void => this.#assert(() => ok(value, message))
  readonly is = (actual: unknown, expected: unknown, message?: string): void =>
    this.#assert(() => strictEqual(actual, expected, message))
  readonly isNot = (actual: unknown, expected: unknown, message?: string): void =>
    this.#assert(() => notStrictEqual(actual, expected, message))
  readonly same = (actual: unknown, expected: unknown, message?: string): void =>
    this.#assert(() => deepStrictEqual(actual, expected, message))
  readonly throws = (block: () => unknown, expected: RegExp): void => this.#assert(() => throws(block, expected))
  readonly doesNotThrow = (block: () => unknown): void => this.#assert(() => doesNotThrow(block))

  /** A failed assertion does not throw at its place: the suite would take that for an error of the database. */
  #assert(assertion: () => void): void {
    try {
      assertion()
    } catch (error) {
      this.#failure ??= error
      this.#finish()
    }
    this.#made++
    if (this.#made === this.#planned) this.#finish()
  }

  async run(body: Body): Promise<void> {
    const running = body(this)
    await running
    if (this.#planned !== undefined || !(running instanceof Promise)) await this.#ended
    if (this.#failure !== undefined) throw this.#failure
    if (this.#planned !== undefined) strictEqual(this.#made, this.#planned, 'assertions, as planned')
  }
}

export const tape: Tape = (name: string, options: object | Body, body?: Body): void => {
  const run = typeof options === 'function' ? (options as Body) : body
  if (run === undefined) throw new TypeError(`the test "${name}" has no function`)
  test(name, () => new Assertions().run(run))
}
