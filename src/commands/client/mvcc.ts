import type { Records } from '../../client/index.js'
import { BASE64_FLAG, keyArgument } from './arguments.js'
import { clientCommand } from './client-command.js'
import { shown } from './shown.js'

export const mvcc = clientCommand({
  operands: ['KEY'],
  flags: { ...BASE64_FLAG },
  about: `Prints all records of KEY as Percolator keeps them: its lock, its write records and its values, newest first. On a terminal they are
the columns of the paper, by timestamp.`,
  example: `$ perkv mvcc seat/1
{"lock":null,"writes":[{"type":"put","start_ts":3677245337305088,"commit_ts":3677245337305089,"short_value":"Ann"}],"values":[]}`,

  async run({ db, flags, screen }) {
    const records = await db.mvcc(keyArgument(flags), { as: 'bytes' })
    if (screen.form !== 'table') {
      await screen.line(records)
      return undefined
    }
    const table = screen.table(['timestamp', 'lock', 'write', 'data'])
    for (const row of columnsOf(records)) await screen.write(table.add(row))
    if (screen.form === 'table') await screen.write(table.end())
    return undefined
  },
})

/**
 * One row per timestamp, newest first: a lock and a value are in the row of their transaction's start_ts, a write record in that
 * of its commit_ts.
 */
function columnsOf({ lock, writes, values }: Records<'bytes'>): string[][] {
  const rows = new Map<number, { lock?: string; write?: string; data?: string }>()
  const at = (ts: number) => {
    const row = rows.get(ts) ?? {}
    rows.set(ts, row)
    return row
  }
  for (const { type, startTs, commitTs, shortValue } of writes) {
    at(commitTs).write = type === 'rollback' ? 'rollback' : `${type} @ ${startTs}`
    if (shortValue !== undefined) at(startTs).data = shown(shortValue)
  }
  for (const { startTs, value } of values) at(startTs).data = shown(value)
  if (lock !== null) at(lock.startTs).lock = `${lock.type}, primary ${shown(lock.primary)}`
  return [...rows]
    .sort(([one], [other]) => other - one)
    .map(([ts, { lock = '', write = '', data = '' }]) => [String(ts), lock, write, data])
}
