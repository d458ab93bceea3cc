import { Readable } from 'node:stream'
import { laterTurn } from '../../event-loop/time-slicer.js'

/**
 * An answer that is encoded in slices while its client receives it. Encoded at once it would take at least twice its memory, and
 * JSON up to twelve times.
 */
export class LongAnswer extends Readable {
  readonly #pieces: Iterator<Buffer, void>

  /** @param memoryBytes memory of the data that is encoded. */
  constructor(
    pieces: Iterator<Buffer, void>,
    readonly memoryBytes: number,
  ) {
    super()
    this.#pieces = pieces
  }

  override _read(): void {
    void laterTurn().then(() => this.#pushNext())
  }

  #pushNext(): void {
    if (this.destroyed) return
    try {
      const { value, done } = this.#pieces.next()
      this.push(done ? null : value)
    } catch (error) {
      this.destroy(error as Error)
    }
  }
}
