/**
 * Calls once after some time, unless the process has ended by then: in Node the timer does not keep it running. @returns a
 * function that cancels it.
 */
export function backgroundTimer(ms: number, call: () => void): () => void {
  const timer: unknown = setTimeout(call, ms)
  if (typeof timer === 'object') (timer as NodeJS.Timeout).unref()
  return () => clearTimeout(timer as NodeJS.Timeout)
}
