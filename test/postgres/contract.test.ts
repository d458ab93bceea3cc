import type { CompleteStore, Store } from '../../src/store/store.js'
import { TABLE_TRAITS } from '../../src/store/table/table-store.js'
import { storeSuite } from '../store/store-suite.js'
import { openTableStore } from '../store/table/open-table-store.js'
import { openOwnTable } from './own-table.js'

storeSuite('postgres', {
  traits: { ...TABLE_TRAITS, plainOnePhaseCommit: true },
  hasManyClocks: true,
  // Cases that call what the store lacks are skipped by its traits.
  open: async (options) => (await openTableStore(await openOwnTable(), options)) as Store as CompleteStore,
})
