/** Slows a garbage collection down, so that it does not disturb other requests. */
export interface Pace {
  /** Awaited after each step. @param workedMs duration of the step. */
  pause(workedMs: number): Promise<void>
  /** Ends the collection after its present step. */
  readonly signal?: AbortSignal | undefined
}
