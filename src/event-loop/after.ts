/** Is here, or comes later. */
export type Awaitable<T> = T | Promise<T>

/** `next` of the value: in this turn where the value is here, so that one function serves callers that wait and callers that cannot. */
export function after<T, U>(value: Awaitable<T>, next: (value: T) => Awaitable<U>): Awaitable<U> {
  return value instanceof Promise ? value.then(next) : next(value)
}

/** The value, for callers that know it to be here. */
export function atHand<T>(value: Awaitable<T>): T {
  if (value instanceof Promise) throw new Error('what had to be at hand has to be waited for')
  return value
}
