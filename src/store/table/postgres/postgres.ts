import type { TableEngine } from '../layout/table.js'

/**
 * PostgreSQL refuses index rows of over some 2700 bytes, and the index of the table has a row's key, a family and a column. This
 * leaves 2600 bytes to a user's key.
 */
const ROW_KEY_BYTES_MAX = 2629

export const POSTGRES: TableEngine = { name: 'postgres', title: 'PostgreSQL', rowKeyBytesMax: ROW_KEY_BYTES_MAX }

/** Whatever else speaks its protocol need not show `xmax` while a transaction is under way. */
export function isPostgres(version: string): boolean {
  return /^PostgreSQL \d/.test(version) && !version.includes('-YB-')
}
