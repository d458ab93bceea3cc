import { encodeLock } from '../../percolator/codec/lock.js'
import { encodeWrite } from '../../percolator/codec/write.js'
import { asBuffer } from '../../percolator/key-text.js'
import type { Mutation } from '../../percolator/row.js'
import type { Timestamp } from '../../percolator/timestamp.js'
import { isData } from '../../percolator/write.js'
import type { EngineOp } from './engine.js'
import { lockKey, newestKey, valueKey, writeKey } from './keyspace.js'
import { encodeNewest } from './newest-record.js'

/** What CF_NEWEST holds of a key, as far as a batch has to know it. */
export interface NewestKnown {
  /** No Put or Delete above `commitTs` is stored. */
  isNewest(key: Uint8Array, commitTs: Timestamp): boolean
  /** The key's newest record is the one at `commitTs`. */
  isStored(key: Uint8Array, commitTs: Timestamp): boolean
}

/**
 * How mutations stand in LevelDB: their own cells, and beside CF_WRITE the newest Put or Delete of each key in CF_NEWEST.
 * Whoever removes that one removes all Puts and Deletes of the key: `gc` removes a newest Delete after everything older.
 */
export function engineOps(mutations: readonly Mutation[], newest: NewestKnown): EngineOp[] {
  const ops: EngineOp[] = []
  for (const mutation of mutations) {
    const { key } = mutation
    switch (mutation.type) {
      case 'put-lock':
        ops.push({ type: 'put', key: lockKey(key), value: encodeLock(mutation.lock) })
        break
      case 'delete-lock':
        ops.push({ type: 'del', key: lockKey(key) })
        break
      case 'put-write': {
        const { commitTs } = mutation.write
        const value = encodeWrite(mutation.write)
        ops.push({ type: 'put', key: writeKey(key, commitTs), value })
        if (isData(mutation.write) && newest.isNewest(key, commitTs))
          ops.push({ type: 'put', key: newestKey(key), value: encodeNewest(commitTs, value) })
        break
      }
      case 'delete-write':
        ops.push({ type: 'del', key: writeKey(key, mutation.commitTs) })
        if (newest.isStored(key, mutation.commitTs)) ops.push({ type: 'del', key: newestKey(key) })
        break
      case 'put-value':
        ops.push({ type: 'put', key: valueKey(key, mutation.startTs), value: asBuffer(mutation.value) })
        break
      case 'delete-value':
        ops.push({ type: 'del', key: valueKey(key, mutation.startTs) })
        break
    }
  }
  return ops
}
