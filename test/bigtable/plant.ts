import type { Expected, RowWrite, Table } from '../../src/store/table/layout/table.js'

/** A column that no row has. */
const ABSENT: Expected = { family: 'v', qualifier: Buffer.from('absent'), value: undefined }

/** Writes or removes a row, whatever it has, until that is done. */
export async function plant(table: Table, key: Buffer, writes: readonly RowWrite[] | 'remove'): Promise<void> {
  let changed: string
  do changed = await table.change(key, ABSENT, writes)
  while (changed !== 'done')
}
