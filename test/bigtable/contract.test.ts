import { BIGTABLE_TRAITS } from '../../src/store/bigtable/bigtable-store.js'
import type { CompleteStore, Store } from '../../src/store/store.js'
import { openBigtableStore } from '../store/bigtable/open-bigtable-store.js'
import { storeSuite } from '../store/store-suite.js'
import { openOwnTable } from './own-table.js'

storeSuite('bigtable, on the emulator', {
  traits: BIGTABLE_TRAITS,
  hasManyClocks: true,
  // Cases that call what the store lacks are skipped by its traits.
  open: async (options) => (await openBigtableStore(await openOwnTable(), options)) as Store as CompleteStore,
})
