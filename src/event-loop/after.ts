export type Awaitable<T> = T | Promise<T>

/**
 * Calls `next` with the value, synchronously if it is no promise: one function serves callers that may wait and callers that
 * must not.
 */
export function after<T, U>(value: Awaitable<T>, next: (value: T) => Awaitable<U>): Awaitable<U> {
  return value instanceof Promise ? value.then(next) : next(value)
}

export function atHand<T>(value: Awaitable<T>): T {
  if (value instanceof Promise) throw new Error('what had to be at hand has to be waited for')
  return value
}
