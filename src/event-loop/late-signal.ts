/** A signal, or a function that makes it on the first wait. Most calls never wait and never pay for a signal. */
export type LateSignal = AbortSignal | (() => AbortSignal)

export function signalOf(signal: LateSignal | undefined): AbortSignal | undefined {
  return typeof signal === 'function' ? signal() : signal
}

/** @throws the reason of a signal that is made already, and aborted. */
export function requireWanted(signal: LateSignal | undefined): void {
  if (typeof signal === 'object') signal.throwIfAborted()
}

export function eitherSignal(one: AbortSignal | undefined, other: LateSignal | undefined): LateSignal | undefined {
  if (one === undefined || other === undefined) return one ?? other
  let either: AbortSignal | undefined
  return () => {
    either ??= AbortSignal.any([one, signalOf(other) as AbortSignal])
    return either
  }
}
