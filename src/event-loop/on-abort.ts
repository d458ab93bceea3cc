interface Waiters {
  readonly runs: Set<{ readonly run: () => void }>
  readonly listener: () => void
}

const waitersOf = new WeakMap<AbortSignal, Waiters>()

/**
 * Calls `run` when the signal aborts; ignores a signal that has aborted already. A signal has one listener, whatever number of
 * calls wait for it, because Node warns of a memory leak from the eleventh listener on.
 * @returns a function that removes `run`. It must be called when nothing waits any more.
 */
export function onAbort(signal: AbortSignal | undefined, run: () => void): () => void {
  if (signal === undefined) return () => {}
  const waiters = waitersOf.get(signal) ?? listening(signal)
  const own = { run }
  waiters.runs.add(own)
  return () => {
    if (waiters.runs.delete(own) && waiters.runs.size === 0) forget(signal, waiters)
  }
}

function listening(signal: AbortSignal): Waiters {
  const runs: Waiters['runs'] = new Set()
  const listener = (): void => {
    forget(signal, waiters)
    for (const own of [...runs]) if (runs.delete(own)) own.run()
  }
  const waiters: Waiters = { runs, listener }
  waitersOf.set(signal, waiters)
  signal.addEventListener('abort', listener, { once: true })
  return waiters
}

function forget(signal: AbortSignal, { listener }: Waiters): void {
  waitersOf.delete(signal)
  signal.removeEventListener('abort', listener)
}
