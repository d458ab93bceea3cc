import type { Db } from './db.js'

const PORTION = 10_000

/** Deletes all keys that begin with `prefix`, in portions of one transaction each, so that no size is too large. */
export async function deletePrefix(db: Db, prefix: string): Promise<void> {
  for (let more = true; more; ) ({ more } = await db.deleteRange({ prefix, limit: PORTION }))
}
