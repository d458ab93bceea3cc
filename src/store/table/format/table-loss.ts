import type { Table } from '../layout/table.js'
import { changeFormat, FIRST_FORMAT, type Serving, soundFormat, type TableLoss } from './format-row.js'

const TRIES_MAX = 10

/**
 * Notes in the table that it lacks what its servers have committed: none serves it from then on.
 * @param loss with what this server knows of the oracle. A loss whose timestamps are below an accepted one is that one, found late.
 * @throws UnusableTable; KvError `storage_unavailable`
 */
export async function noteLoss(table: Table, serving: Serving, loss: TableLoss): Promise<void> {
  for (let tries = 0; tries < TRIES_MAX; tries++) {
    const found = await soundFormat(table, serving)
    const { accepted = -1, lost = loss } = found ?? {}
    if (loss.mark <= accepted) return
    const all = { why: lost.why, mark: Math.max(lost.mark, loss.mark), epoch: Math.max(lost.epoch, loss.epoch) }
    if (found?.lost?.mark === all.mark && found.lost.epoch === all.epoch) return
    if (await changeFormat(table, found, { ...(found ?? FIRST_FORMAT), lost: all })) return
  }
}
