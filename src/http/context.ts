import type { Limits } from '../limits.js'
import type { Store } from '../store/store.js'

/** What every route is given. */
export interface AppContext {
  readonly store: Store
  readonly limits: Limits
  readonly version: string
  readonly durability: 'sync' | 'async'
}
