import type { PrewriteRequest } from '../../src/percolator/api.js'
import { Latches } from '../../src/store/latches.js'
import type { CompleteStore, Store } from '../../src/store/store.js'

/**
 * A store without one-phase commit, and without latches: every prewrite takes locks, and every commit is a second request. Clients of
 * the Percolator calls are still granted async commit.
 */
export function inTwoPhases(store: CompleteStore): Store {
  const prewrite: Store['prewrite'] = ({ tryOnePc, reads, ...request }: PrewriteRequest) => store.prewrite(request)
  return replaced(store, {
    name: 'two-phases',
    traits: {
      ...store.traits,
      onePhaseCommit: false,
      plainOnePhaseCommit: false,
      asyncCommit: false,
      compact: false,
      lockCount: false,
    },
    locks: undefined,
    files: undefined,
    prewrite,
    get: async (request) => store.get(request),
    exclusive: (_, body) => body(prewrite),
    exclusiveSync: () => false,
  })
}

/** The same store with latches of its own: any call may be made under them. */
export function inTwoPhasesLatched(store: CompleteStore): Store {
  const latches = new Latches()
  const two = inTwoPhases(store)
  const exclusive: Store['exclusive'] = ({ written, read }, body) =>
    latches.hold(written, () => body(two.prewrite), read)
  return replaced(two, { exclusive })
}

function replaced(store: Store, parts: Partial<Store>): Store {
  return new Proxy(store, {
    get: (target, name) => {
      if (Object.hasOwn(parts, name)) return Reflect.get(parts, name)
      const value: unknown = Reflect.get(target, name)
      return typeof value === 'function' ? value.bind(target) : value
    },
  })
}
