import type { PrewriteRequest } from '../../src/percolator/api.js'
import { Latches } from '../../src/store/latches.js'
import type { Store } from '../../src/store/store.js'

/**
 * A store without one-phase commit: every prewrite takes locks, and every commit is a second request. Its latches are its
 * own, so any call may be made under them. Clients of the Percolator calls are still granted async commit.
 */
export function inTwoPhases(store: Store): Store {
  const latches = new Latches()
  const prewrite: Store['prewrite'] = ({ tryOnePc, reads, ...request }: PrewriteRequest) => store.prewrite(request)
  const instead: Partial<Store> = {
    name: 'two-phases',
    capabilities: { ...store.capabilities, onePhaseCommit: false, asyncCommit: false },
    prewrite,
    exclusive: ({ written, read }, body) => latches.hold(written, () => body(prewrite), read),
  }
  return new Proxy(store, {
    get: (target, name) => {
      const value: unknown = Reflect.get(Object.hasOwn(instead, name) ? instead : target, name)
      return typeof value === 'function' ? value.bind(target) : value
    },
  })
}
