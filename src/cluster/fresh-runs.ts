/** Runs a call once at a time. Every caller gets a run that begins after its request; callers during a run share the next one. */
export class FreshRuns<T> {
  readonly #call: () => Promise<T>
  #running: Promise<T> | undefined
  #next: Promise<T> | undefined

  constructor(call: () => Promise<T>) {
    this.#call = call
  }

  run(): Promise<T> {
    if (this.#running === undefined && this.#next === undefined) return this.#start()
    this.#next ??= (this.#running ?? Promise.resolve()).then(
      () => this.#start(),
      () => this.#start(),
    )
    return this.#next
  }

  #start(): Promise<T> {
    this.#next = undefined
    const running = this.#call().finally(() => {
      if (this.#running === running) this.#running = undefined
    })
    this.#running = running
    return running
  }
}
