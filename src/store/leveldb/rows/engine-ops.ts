import { asBuffer } from '../../../bytes/key-text.js'
import { SLICE_ITEMS } from '../../../limits.js'
import { encodeLock } from '../../../percolator/codec/lock.js'
import { encodeWrite } from '../../../percolator/codec/write.js'
import { type Mutation, sameKey } from '../../../percolator/row.js'
import { expiryTs, isData } from '../../../percolator/write.js'
import type { Timestamp } from '../../../timestamp.js'
import type { SystemWrite } from '../../system-records.js'
import type { EngineOp } from '../engine/engine.js'
import { expiryKey, lockKey, newestKey, systemKey, valueKey, writeKey } from '../records/keyspace.js'
import { encodeNewest } from '../records/newest-record.js'

const NOTHING = Buffer.alloc(0)

/** Facts about a key's Puts and Deletes that need no read of CF_WRITE. */
export interface NewestKnown {
  /** Upper bound of their commit_ts. */
  readonly bound: (key: Uint8Array) => Timestamp
  readonly stored: (key: Uint8Array) => Timestamp | undefined
}

/**
 * Turns mutations into operations of LevelDB: one record per mutation, a copy of each key's newest Put or Delete in CF_NEWEST,
 * and an entry in CF_EXPIRY per version that expires. A caller that removes the newest must remove all Puts and Deletes of the
 * key: `gc` removes a newest Delete only after all older versions.
 */
export function* engineOps(
  mutations: readonly Mutation[],
  { bound, stored }: NewestKnown,
): Generator<void, EngineOp[], void> {
  const ops: EngineOp[] = []
  let asked: { readonly key: Uint8Array; readonly ts: Timestamp | undefined } | undefined
  const storedTs = (key: Uint8Array): Timestamp | undefined => {
    if (asked === undefined || !sameKey(asked.key, key)) asked = { key, ts: stored(key) }
    return asked.ts
  }
  for (let i = 0; i < mutations.length; i++) {
    if (i % SLICE_ITEMS === SLICE_ITEMS - 1) yield
    const mutation = mutations[i] as Mutation
    const { key } = mutation
    switch (mutation.type) {
      case 'put-lock':
        ops.push({ type: 'put', key: lockKey(key), value: encodeLock(mutation.lock) })
        break
      case 'delete-lock':
        ops.push({ type: 'del', key: lockKey(key) })
        break
      case 'put-write': {
        const { commitTs, type, expireTs } = mutation.write
        // Unchecked prewrites may give two transactions one commit_ts. A Lock record must not replace a Put then.
        if (type === 'lock' && commitTs <= bound(key) && storedTs(key) === commitTs) break
        const value = encodeWrite(mutation.write)
        ops.push({ type: 'put', key: writeKey(key, commitTs), value })
        if (isData(mutation.write) && (commitTs > bound(key) || commitTs >= (storedTs(key) ?? 0)))
          ops.push({ type: 'put', key: newestKey(key), value: encodeNewest(commitTs, value) })
        if (expireTs !== 0)
          ops.push({ type: 'put', key: expiryKey(expiryTs(mutation.write), key, commitTs), value: NOTHING })
        break
      }
      case 'delete-write':
        ops.push({ type: 'del', key: writeKey(key, mutation.commitTs) })
        if (mutation.expiryTs !== undefined)
          ops.push({ type: 'del', key: expiryKey(mutation.expiryTs, key, mutation.commitTs) })
        if (storedTs(key) === mutation.commitTs) ops.push({ type: 'del', key: newestKey(key) })
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

export function systemOp({ name, value }: SystemWrite): EngineOp {
  const key = systemKey(name)
  return value === undefined ? { type: 'del', key } : { type: 'put', key, value: asBuffer(value) }
}
