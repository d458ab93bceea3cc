/**
 * Whether a request that failed so may have taken effect, or may yet. Only an answer that says what became of it rules
 * that out, or the certainty that it was never sent. Errors that know say so themselves; an abort and a defect don't, and
 * are uncertain too.
 */
export function isUncertain(error: unknown): boolean {
  return !(error instanceof Error && 'mayHaveTakenEffect' in error && error.mayHaveTakenEffect === false)
}
