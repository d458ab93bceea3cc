import type { Table } from './table.js'

/** @throws KvError `storage_unavailable` */
export async function recordAt(table: Table, key: Buffer): Promise<Buffer | undefined> {
  const [row] = await table.rows({ keys: [key], columns: [{ family: 'o' }] })
  return row?.cells[0]?.value
}
