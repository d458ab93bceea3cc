import type { Db } from './db.js'

/** Deletes keys in one transaction. @returns whether any of them was there. */
export function deleteKeys(db: Db, keys: readonly string[]): Promise<boolean> {
  return db.transaction(async (txn) => {
    const values = await txn.batchGet(keys, { as: 'bytes' })
    const present = keys.filter((_, i) => values[i] !== undefined)
    for (const key of present) await txn.delete(key)
    return present.length > 0
  })
}
