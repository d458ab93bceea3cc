import { TIMESTAMP_MAX, type Timestamp } from '../timestamp.js'
import type { Job, KnownServer, Registry } from './registry.js'

export class SingleServer implements Registry {
  readonly isShared: boolean = false
  readonly id = undefined
  readonly #never = new AbortController().signal

  async join(): Promise<void> {}
  async leave(): Promise<void> {}
  async publish(): Promise<void> {}
  async announce(): Promise<void> {}
  async find(): Promise<undefined> {}

  servers(): readonly KnownServer[] {
    return []
  }

  async announced(): Promise<Timestamp> {
    return 0
  }

  async oldest(): Promise<Timestamp> {
    return TIMESTAMP_MAX
  }

  lead<T>(_job: Job, body: (signal: AbortSignal) => Promise<T>): Promise<T> {
    return body(this.#never)
  }
}
