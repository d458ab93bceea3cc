import { openMemoryStore } from '../../../src/store/memory/memory-store.js'
import { storeSuite } from '../store-suite.js'

storeSuite('memory', {
  traits: {
    onePhaseCommit: true,
    asyncCommit: true,
    atomicRequests: true,
    deadlocks: 'detected',
    restore: true,
    compact: true,
    lockCount: true,
    changes: true,
    collection: true,
  },
  open: openMemoryStore,
})
