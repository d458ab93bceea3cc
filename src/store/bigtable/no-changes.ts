import { KvError } from '../../errors/kv-error.js'
import type { ChangeLog } from '../change-log.js'

/** There is no log of changes on Bigtable, because no process sees all commits. */
export class NoChanges implements ChangeLog {
  readonly start = 0
  readonly newest = 0

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
  return new KvError('not_supported', 'the store bigtable keeps no log of changes: it has no feed and no watches', {})
}
