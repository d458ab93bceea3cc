import { afterPrefix } from '../../../bytes/key-range.js'
import { keyText } from '../../../bytes/key-text.js'
import { decodeKey } from '../../../percolator/codec/key.js'
import { deleteWrite, type Mutation } from '../../../percolator/row.js'
import { isData, type WriteRecord } from '../../../percolator/write.js'
import { TIMESTAMP_MAX } from '../../../timestamp.js'
import type { Store } from '../../store.js'
import { pagesOf } from '../engine/engine.js'
import { CF_NEWEST, reservedRange, valueKey } from '../records/keyspace.js'
import { decodeNewest } from '../records/newest-record.js'
import { KEYS_AT_A_TIME } from './batch-sizes.js'
import { guard } from './guard.js'
import { readAllValues } from './row-reader.js'
import type { RowStore } from './row-store.js'

type IsOver = Parameters<Store['sweepRows']>[1]

export function sweepRows(rows: RowStore, prefix: Uint8Array, isOver: IsOver): Promise<number> {
  return guard(async () => {
    rows.health.requireAvailable()
    let bytesLeft = 0
    const range = reservedRange(CF_NEWEST, prefix, afterPrefix(prefix) as Uint8Array)
    for await (const page of pagesOf(rows.engine, range, KEYS_AT_A_TIME)) {
      const over: Uint8Array[] = []
      for (const [stored, bytes] of page) {
        const key = decodeKey(stored)
        const value = await valueIn(rows, key, decodeNewest(bytes))
        if (value === undefined || isOver(value)) over.push(key)
        else bytesLeft += key.length - prefix.length + value.length
      }
      // A request that holds the latch may take long, and is going to write the row.
      const free = over.filter((key) => rows.latches.isFree(keyText(key)))
      if (free.length > 0) await remove(rows, free, isOver)
    }
    return bytesLeft
  })
}

async function valueIn(rows: RowStore, key: Uint8Array, write: WriteRecord): Promise<Uint8Array | undefined> {
  if (write.type !== 'put') return undefined
  return write.shortValue ?? (await rows.engine.get(valueKey(key, write.startTs)))
}

async function remove(rows: RowStore, keys: readonly Uint8Array[], isOver: IsOver): Promise<void> {
  await rows.latches.hold(keys.map(keyText), async () => {
    const mutations: Mutation[] = []
    for (const { key, lock, writes } of await rows.readRows(keys, TIMESTAMP_MAX, 'all')) {
      const newest = writes.find(isData)
      const value = newest && (await valueIn(rows, key, newest))
      if (lock !== undefined || (value !== undefined && !isOver(value))) continue
      for (const write of writes) mutations.push(deleteWrite(key, write))
      for (const { startTs } of await readAllValues(rows.engine, key))
        mutations.push({ type: 'delete-value', key, startTs })
    }
    await rows.apply(mutations)
  })
}
