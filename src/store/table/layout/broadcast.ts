/**
 * Texts that reach the other servers of a table at once, or not at all: any may be lost, so whoever waits for one looks at the
 * table now and then as well.
 */
export interface Broadcast {
  /** True while texts arrive. */
  readonly isOpen: boolean
  /** While it is open, waiters let this many times more time pass between two looks than without it. */
  readonly patience: number
  /**
   * Opens it.
   * @param heard gets each text, also those of this server. Must not throw.
   * @param opened called when texts arrive from now on. Some may have been missed before.
   */
  listen(heard: (text: string) => void, opened: () => void): void
  /** @param text of up to `TEXT_BYTES_MAX` characters of ASCII. @returns a promise that is never rejected. */
  send(text: string): Promise<void>
}

export const TEXT_BYTES_MAX = 7900
