import type { TableEngine } from '../layout/table.js'

/** Limit of a row key in Google's documentation. */
const ROW_KEY_BYTES_MAX = 4096

export const BIGTABLE: TableEngine = { name: 'bigtable', title: 'Bigtable', rowKeyBytesMax: ROW_KEY_BYTES_MAX }
