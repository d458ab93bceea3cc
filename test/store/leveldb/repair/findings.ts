import type { Engine } from '../../../../src/store/leveldb/engine/engine.js'
import { checkRecords } from '../../../../src/store/leveldb/integrity/check-records.js'

/** What `perkv check` says of the records. @param engine the one beneath the seals. */
export async function findingsIn(engine: Engine, now?: () => number): Promise<string[]> {
  const messages: string[] = []
  await checkRecords(engine, { onFinding: ({ message }) => void messages.push(message), ...(now && { now }) })
  return messages
}
