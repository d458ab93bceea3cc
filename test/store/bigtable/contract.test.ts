import { BIGTABLE_TRAITS } from '../../../src/store/bigtable/bigtable-store.js'
import type { CompleteStore, Store } from '../../../src/store/store.js'
import { storeSuite } from '../store-suite.js'
import { MemoryTable } from './memory-table.js'
import { openBigtableStore } from './open-bigtable-store.js'

storeSuite('bigtable, on a table in memory', {
  traits: BIGTABLE_TRAITS,
  hasManyClocks: true,
  // Cases that call what the store lacks are skipped by its traits.
  open: async (options) => (await openBigtableStore(new MemoryTable(), options)) as Store as CompleteStore,
})
