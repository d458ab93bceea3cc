export interface Pace {
  /** Awaited after each step. @param workedMs duration of the step. */
  pause(workedMs: number): Promise<void>
  readonly signal?: AbortSignal | undefined
}
