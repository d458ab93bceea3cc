import { printKey } from '../../../errors/print-key.js'
import { isData } from '../../../percolator/write.js'
import { attachedName } from '../../attached-names.js'
import type { Engine } from '../engine/engine.js'
import { systemKey } from '../records/keyspace.js'
import type { Finding, KeyRecords } from './check-key.js'

const NOTHING = Buffer.alloc(0)

/**
 * Checks that the newest version of a key, if it is attached to a lease, has the record by which the end of the lease finds it. A record
 * without such a version says nothing.
 * @param engine without seals.
 */
export async function missingAttachment(
  engine: Pick<Engine, 'get'>,
  { key, writes }: Pick<KeyRecords, 'key' | 'writes'>,
): Promise<Finding | undefined> {
  const newest = writes.find(isData)
  if (newest === undefined || newest.leaseFence === 0) return undefined
  const { leaseFence, commitTs } = newest
  const name = systemKey(attachedName(leaseFence, key))
  if ((await engine.get(name)) !== undefined) return undefined
  const message = `the put record of ${printKey(key)} at ${commitTs} is attached to the fence ${leaseFence}, and has no record of that`
  const ops = [{ type: 'put', key: name, value: NOTHING } as const]
  return { kind: 'missing_attachment', key, ts: commitTs, message, isLoss: false, ops }
}
