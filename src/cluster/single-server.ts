import { TIMESTAMP_MAX, type Timestamp } from '../timestamp.js'
import type { Registry } from './registry.js'

export class SingleServer implements Registry {
  readonly isShared = false
  readonly #never = new AbortController().signal

  async publish(): Promise<void> {}

  async oldest(): Promise<Timestamp> {
    return TIMESTAMP_MAX
  }

  async urlOf(): Promise<undefined> {}

  lead<T>(_job: 'gc', body: (signal: AbortSignal) => Promise<T>): Promise<T> {
    return body(this.#never)
  }
}
