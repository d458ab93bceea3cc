import { KvError } from '../../errors/kv-error.js'
import type { ChangeLog, KeyListener } from '../change-log.js'
import type { KeyPolling } from './key-polling.js'

/** There is no log of changes on Bigtable, because no process sees all commits. Single keys are looked at instead. */
export class NoChanges implements ChangeLog {
  readonly start = 0
  readonly newest = 0
  readonly #polling: KeyPolling

  constructor(polling: KeyPolling) {
    this.#polling = polling
  }

  watchKeys(listener: KeyListener): () => void {
    return this.#polling.watch(listener)
  }

  async begin(): Promise<void> {
    throw noChanges()
  }
  resolve(): never {
    throw noChanges()
  }
  heldBackBy(): [] {
    return []
  }
  read(): never {
    throw noChanges()
  }
  mayExpire(): boolean {
    return false
  }
  expiries(): never {
    throw noChanges()
  }
  withValues(): never {
    throw noChanges()
  }
  listen(): never {
    throw noChanges()
  }
}

function noChanges(): KvError {
  return new KvError(
    'not_supported',
    'the store bigtable keeps no log of changes, because no server sees the commits of all: it has no feed',
    {},
  )
}
