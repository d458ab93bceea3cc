import { storeSuite } from '../store-suite.js'
import { testStores } from '../support.js'

const stores = testStores()

storeSuite('leveldb', {
  traits: {
    onePhaseCommit: true,
    plainOnePhaseCommit: true,
    asyncCommit: true,
    atomicRequests: true,
    deadlocks: 'detected',
    restore: true,
    compact: true,
    lockCount: true,
    changes: true,
    collection: true,
  },
  place: stores.directory,
  open: ({ place, ...options } = {}) => stores.open({ ...options, ...(place && { directory: place }) }),
})
