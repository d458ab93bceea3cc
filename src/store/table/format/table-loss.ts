import { isDeepStrictEqual } from 'node:util'
import type { Table } from '../layout/table.js'
import { UnusableTable } from '../layout/unusable-table.js'
import { changeFormat, FIRST_FORMAT, type Serving, soundFormat, type TableLoss } from './format-row.js'

const TRIES_MAX = 10

/**
 * Notes in the table that it lacks, or may lack, what its servers have committed: none starts to serve it from then on, and unless
 * that is in doubt none goes on.
 * @param loss with what this server knows of the oracle. A loss whose timestamps are below an accepted one is that one, found late.
 * @throws UnusableTable; KvError `storage_unavailable`
 */
export async function noteLoss(table: Table, serving: Serving, loss: TableLoss): Promise<void> {
  for (let tries = 0; tries < TRIES_MAX; tries++) {
    const found = await soundFormat(table, serving)
    const { accepted = -1, lost = loss } = found ?? {}
    if (loss.mark <= accepted) return
    // What is known counts for more than a doubt, and otherwise what was found first.
    const { why, isDoubt } = lost.isDoubt && !loss.isDoubt ? loss : lost
    const all = { why, isDoubt, mark: Math.max(lost.mark, loss.mark), epoch: Math.max(lost.epoch, loss.epoch) }
    if (isDeepStrictEqual(found?.lost, all)) return
    if (await changeFormat(table, found, { ...(found ?? FIRST_FORMAT), lost: all })) return
  }
  throw new UnusableTable(`${serving.place}: the record of the format cannot be written`)
}
