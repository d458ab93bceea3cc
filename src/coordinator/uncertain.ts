/**
 * True when a request that failed with this error may have taken effect, or may still do so. An error rules that out only
 * by `mayHaveTakenEffect: false`: the server refused the request, or it was never sent. Aborts and defects lack the
 * property and count as uncertain.
 */
export function isUncertain(error: unknown): boolean {
  return !(error instanceof Error && 'mayHaveTakenEffect' in error && error.mayHaveTakenEffect === false)
}
