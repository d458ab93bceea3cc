/** A signal, or what makes one for the first wait: most calls never wait. */
export type LateSignal = AbortSignal | (() => AbortSignal)

export function signalOf(signal: LateSignal | undefined): AbortSignal | undefined {
  return typeof signal === 'function' ? signal() : signal
}

/** Aborted with the first of the two. */
export function eitherSignal(one: AbortSignal | undefined, other: LateSignal | undefined): LateSignal | undefined {
  if (one === undefined || other === undefined) return one ?? other
  let either: AbortSignal | undefined
  return () => {
    either ??= AbortSignal.any([one, signalOf(other) as AbortSignal])
    return either
  }
}
