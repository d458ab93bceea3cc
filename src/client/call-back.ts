/**
 * Answers a callback in the style of Node. An error that the callback throws is no failure of the call, so it is thrown outside
 * of the promise.
 */
export function callBack<T>(call: Promise<T>, callback: ((error: unknown, value?: T) => void) | undefined): void {
  call.then(
    (value) => queueMicrotask(() => callback?.(null, value)),
    (error: unknown) => queueMicrotask(() => callback?.(error)),
  )
}
