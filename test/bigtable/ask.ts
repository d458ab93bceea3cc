import { isLost, Refused } from '../anomalies/http-transaction.js'

/** A server that stands still is left alone after this long. */
export const PATIENCE_MS = 4000

interface Asking {
  readonly method?: string
  readonly signal?: AbortSignal
}

/** @throws Refused; what fetch throws, also when the server is not there in time. */
export async function ask<T>(url: string, body?: unknown, { method = 'POST', signal }: Asking = {}): Promise<T> {
  const answer = await fetch(url, {
    signal: signal ?? AbortSignal.timeout(PATIENCE_MS),
    ...(body !== undefined && { method, headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) }),
  })
  const text = await answer.text()
  if (answer.ok) return JSON.parse(text) as T
  const problem = JSON.parse(text) as Record<string, unknown>
  throw new Refused(answer.status, String(problem['code']), problem)
}

/** @throws the error, unless it is that of a server that is killed, stopped, or has no answer of the table. */
export function mustBeAway(error: unknown): void {
  const isTimeout = error instanceof DOMException && error.name === 'TimeoutError'
  const isUnavailable = error instanceof Refused && (error.status === 503 || error.status === 504)
  if (!isTimeout && !isLost(error) && !isUnavailable) throw error
}

export function pause(ms: number): Promise<void> {
  return new Promise((wake) => setTimeout(wake, ms))
}

/** Tries until a server is there. */
export async function surely<T>(body: () => Promise<T>): Promise<T> {
  for (;;)
    try {
      return await body()
    } catch (error) {
      mustBeAway(error)
      await pause(100)
    }
}
