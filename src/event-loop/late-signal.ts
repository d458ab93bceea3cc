/** A signal, or a function that makes it on the first wait. Most calls never wait and never pay for a signal. */
export type LateSignal = AbortSignal | (() => AbortSignal)

export function signalOf(signal: LateSignal | undefined): AbortSignal | undefined {
  return typeof signal === 'function' ? signal() : signal
}

export function eitherSignal(one: AbortSignal | undefined, other: LateSignal | undefined): LateSignal | undefined {
  if (one === undefined || other === undefined) return one ?? other
  let either: AbortSignal | undefined
  return () => {
    either ??= AbortSignal.any([one, signalOf(other) as AbortSignal])
    return either
  }
}
