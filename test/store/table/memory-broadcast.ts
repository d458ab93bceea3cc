import type { Broadcast } from '../../../src/store/table/layout/broadcast.js'

/** Between the servers of one process. */
export class MemoryBroadcast implements Broadcast {
  isOpen = true
  /** All that were sent while it was open. */
  readonly texts: string[] = []
  readonly #heard: ((text: string) => void)[] = []
  readonly #opened: (() => void)[] = []

  /** @param arrives whether a text reaches a server. */
  constructor(
    readonly patience = 1,
    readonly arrives: () => boolean = () => true,
  ) {}

  listen(heard: (text: string) => void, opened: () => void): void {
    this.#heard.push(heard)
    this.#opened.push(opened)
    opened()
  }

  async send(text: string): Promise<void> {
    if (!this.isOpen) return
    this.texts.push(text)
    setImmediate(() => {
      for (const heard of this.#heard) if (this.arrives()) heard(text)
    })
  }

  reopen(): void {
    this.isOpen = true
    for (const opened of this.#opened) opened()
  }
}
