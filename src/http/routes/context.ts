import type { Database } from '../../database/database.js'
import type { Limits } from '../../limits.js'
import type { Traffic } from '../admission/traffic.js'

export interface AppContext {
  readonly database: Database
  readonly limits: Limits
  readonly traffic: Traffic
  readonly version: string
  readonly durability: 'sync' | 'async'
}
