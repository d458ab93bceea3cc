import { decodeKey } from '../../../percolator/codec/key.js'
import { decodeLock } from '../../../percolator/codec/lock.js'
import { type Engine, pagesOf } from '../engine/engine.js'
import type { LockTable } from '../memory/lock-table.js'
import { CF_LOCK, familyRange } from '../records/keyspace.js'
import { PAGE } from './batch-sizes.js'

/** Fills the table with the locks on disk. Pessimistic locks, which are only in memory, stay. */
export async function loadLocks(engine: Engine, locks: LockTable): Promise<void> {
  // A failed batch may have ended its lock. Such a lock is dropped: a prewrite can do without a lost pessimistic lock.
  const inMemory = [...locks.all()].filter(({ lock, pending }) => lock.type === 'pessimistic' && pending === undefined)
  locks.clear()
  for (const { key, lock } of inMemory) locks.put(key, lock)
  for await (const page of pagesOf(engine, familyRange(CF_LOCK), PAGE))
    for (const [key, bytes] of page) locks.put(decodeKey(key), decodeLock(bytes))
}
