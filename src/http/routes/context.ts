import type { Database } from '../../database/database.js'
import type { Limits } from '../../limits.js'
import type { HttpMeters } from '../../meters/http-meters.js'
import type { Traffic } from '../admission/traffic.js'
import type { Heartbeats } from '../connections/heartbeats.js'
import type { Report } from '../wire/error-handler.js'

export interface AppContext {
  readonly database: Database
  readonly limits: Limits
  readonly traffic: Traffic
  readonly heartbeats: Heartbeats
  readonly report: Report
  readonly meters: HttpMeters
  readonly version: string
  readonly durability: 'sync' | 'async'
}
