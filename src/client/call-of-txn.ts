/**
 * The promise of a call that must be awaited. It reports when the caller begins to wait. An unhandled rejection does not end the
 * process: the commit reports the error to a caller that has not waited.
 */
export class CallOfTxn<T> extends Promise<T> {
  /** `then` returns a plain promise. */
  static override get [Symbol.species](): PromiseConstructor {
    return Promise
  }
  #onAwaited: (() => void) | undefined

  static of<T>(run: () => Promise<T>, onAwaited: () => void): CallOfTxn<T> {
    const call = new CallOfTxn<T>((resolve, reject) => void run().then(resolve, reject))
    call.#onAwaited = onAwaited
    Promise.prototype.then.call(call, undefined, () => {})
    return call
  }

  // biome-ignore lint/suspicious/noThenProperty: It is a promise.
  override then<A = T, B = never>(
    onFulfilled?: ((value: T) => A | PromiseLike<A>) | null,
    onRejected?: ((reason: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    this.#onAwaited?.()
    this.#onAwaited = undefined
    return super.then(onFulfilled, onRejected)
  }
}
