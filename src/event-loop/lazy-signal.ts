import type { Stages } from './stages.js'

/** Creates a signal at the first wait. Most calls never wait, and never pay for a signal. */
export interface SignalSource {
  (): AbortSignal
  /** Counts the waits of the call. */
  readonly stages?: Stages | undefined
  /** Throws the abort reason, without creating the signal. */
  readonly require?: (() => void) | undefined
}

export type LazySignal = AbortSignal | SignalSource

export function signalOf(signal: LazySignal | undefined): AbortSignal | undefined {
  return typeof signal === 'function' ? signal() : signal
}

export function stagesOf(signal: LazySignal | undefined): Stages | undefined {
  return (signal as { readonly stages?: Stages | undefined } | undefined)?.stages
}

/** Throws the abort reason. Never creates the lazy signal. */
export function requireWanted(signal: LazySignal | undefined): void {
  if (typeof signal === 'object') signal.throwIfAborted()
  else signal?.require?.()
}

export function eitherSignal(one: AbortSignal | undefined, other: LazySignal | undefined): LazySignal | undefined {
  if (one === undefined || other === undefined) return one ?? other
  let either: AbortSignal | undefined
  const make = (): AbortSignal => {
    either ??= AbortSignal.any([one, signalOf(other) as AbortSignal])
    return either
  }
  return Object.assign(make, { stages: stagesOf(other), require: () => requireWanted(other) })
}
