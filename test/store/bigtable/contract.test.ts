import { BIGTABLE_CAPABILITIES } from '../../../src/store/bigtable/bigtable-store.js'
import { storeSuite } from '../store-suite.js'
import { MemoryTable } from './memory-table.js'
import { openBigtableStore } from './open-bigtable-store.js'

storeSuite('bigtable, on a table in memory', {
  capabilities: BIGTABLE_CAPABILITIES,
  open: (options) => openBigtableStore(new MemoryTable(), options),
})
