import type { Table } from './table.js'

export async function recordAt(table: Table, key: Buffer): Promise<Buffer | undefined> {
  const [record] = await recordsAt(table, [key])
  return record
}

/** In the order of `keys`, by one call. */
export async function recordsAt(table: Table, keys: readonly Buffer[]): Promise<(Buffer | undefined)[]> {
  const rows = await table.rows({ keys, columns: [{ family: 'o' }] })
  return keys.map((key) => rows.find((row) => row.key.equals(key))?.cells[0]?.value)
}
