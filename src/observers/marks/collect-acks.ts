import type { MarkedCells } from '../../store/marked-cells.js'
import type { Pace } from '../../store/pace.js'
import type { Timestamp } from '../../timestamp.js'

const KEYS_AT_A_TIME = 256

/**
 * Removes the acknowledgements of runs that committed at or below the safe point. They only matter to runs claimed before those
 * commits, and the safe point refuses these.
 * @returns false when some are left, because they are newer or the pace has ended the work.
 */
export async function collectAcks(
  cells: MarkedCells,
  id: Timestamp,
  safePoint: Timestamp,
  pace?: Pace,
): Promise<boolean> {
  let isEmpty = true
  for (let after: Uint8Array | undefined; !pace?.signal?.aborted; ) {
    const begin = performance.now()
    const acks = await cells.acks(id, { after, limit: KEYS_AT_A_TIME })
    const keys = acks.filter(({ ack }) => ack.commitTs <= safePoint).map(({ key }) => key)
    if (keys.length < acks.length) isEmpty = false
    if (keys.length > 0)
      await cells.change(id, keys, (present) => {
        const old = present.filter(({ ack }) => ack !== undefined && ack.commitTs <= safePoint)
        if (old.length < keys.length) isEmpty = false
        return { value: undefined, changes: old.map(({ key }) => ({ key, ack: null })) }
      })
    after = acks.at(-1)?.key
    if (acks.length < KEYS_AT_A_TIME) return isEmpty
    await pace?.pause(performance.now() - begin)
  }
  return false
}
