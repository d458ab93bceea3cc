import type { TableEngine } from '../layout/table.js'

export const BIGTABLE: TableEngine = { name: 'bigtable', title: 'Bigtable' }
