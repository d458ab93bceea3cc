import type { Table } from './table.js'

export async function recordAt(table: Table, key: Buffer): Promise<Buffer | undefined> {
  const [row] = await table.rows({ keys: [key], columns: [{ family: 'o' }] })
  return row?.cells[0]?.value
}
