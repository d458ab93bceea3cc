import type { PercolatorApi, PrewriteRequest } from '../../src/percolator/api.js'
import { Latches } from '../../src/store/latches.js'
import type { CompleteStore, Store } from '../../src/store/store.js'

type Part = Exclude<keyof Store, keyof PercolatorApi>
type OptionalPart = { [Name in Part]-?: undefined extends Store[Name] ? Name : never }[Part]

/** Each optional part of a store must stand here, so that one that is new can't commit behind the back of this one. */
const OPTIONAL: Record<OptionalPart, 'left out'> = {
  lockCount: 'left out',
  oldestLockTs: 'left out',
  lockWaits: 'left out',
  writeQueue: 'left out',
  levels: 'left out',
  fault: 'left out',
  isTold: 'left out',
  known: 'left out',
  exclusive: 'left out',
  exclusiveNow: 'left out',
  compact: 'left out',
  diskBytes: 'left out',
  diskSpace: 'left out',
  versionCache: 'left out',
  tableCalls: 'left out',
  sharedCells: 'left out',
  restoring: 'left out',
  restore: 'left out',
}

/**
 * A store without one-phase commit, and with nothing that is optional: every prewrite takes locks, and every commit is a
 * second request. Clients of the Percolator calls are still granted async commit.
 */
export function inTwoPhases(store: CompleteStore): Store {
  const capabilities = { onePhaseCommit: false, asyncCommit: false, restore: false, compact: false, lockCount: false }
  const prewrite: Store['prewrite'] = ({ tryOnePc, reads, ...request }: PrewriteRequest) => store.prewrite(request)
  return replaced(store, { name: 'two-phases', capabilities: { ...store.capabilities, ...capabilities }, prewrite })
}

/** The same store with latches of its own: any call may be made under them. */
export function inTwoPhasesLatched(store: CompleteStore): Store {
  const latches = new Latches()
  const { name, capabilities, prewrite } = inTwoPhases(store)
  const exclusive: Store['exclusive'] = ({ written, read }, body) => latches.hold(written, () => body(prewrite), read)
  return replaced(store, { name, capabilities, prewrite, exclusive })
}

function replaced(store: CompleteStore, parts: Partial<Store>): Store {
  return new Proxy(store, {
    get: (target, name) => {
      if (Object.hasOwn(OPTIONAL, name) || Object.hasOwn(parts, name)) return Reflect.get(parts, name)
      const value: unknown = Reflect.get(target, name)
      return typeof value === 'function' ? value.bind(target) : value
    },
  })
}
