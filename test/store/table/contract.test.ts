import type { CompleteStore, Store } from '../../../src/store/store.js'
import { TABLE_TRAITS } from '../../../src/store/table/table-store.js'
import { storeSuite } from '../store-suite.js'
import { MemoryTable } from './memory-table.js'
import { openTableStore } from './open-table-store.js'

storeSuite('bigtable, on a table in memory', {
  traits: TABLE_TRAITS,
  hasManyClocks: true,
  // Cases that call what the store lacks are skipped by its traits.
  open: async (options) => (await openTableStore(new MemoryTable(), options)) as Store as CompleteStore,
})
