import type { Database } from '../../database/database.js'
import type { Limits } from '../../limits.js'
import type { HttpMeters } from '../../meters/http-meters.js'
import type { Answering } from '../../oracle/signed-ask.js'
import type { Durability } from '../../store/durability.js'
import type { Webhooks } from '../../webhooks/webhooks.js'
import type { Traffic } from '../admission/traffic.js'
import type { Heartbeats } from '../connections/heartbeats.js'
import type { HotKeys } from '../load/hot-keys.js'
import type { SlowRequests } from '../load/slow-requests.js'
import type { Report } from '../wire/error-handler.js'

export interface Member {
  readonly id: string
  /** `leader`: URL. */
  readonly role: { readonly role: string; readonly leader: string | undefined; readonly epoch: number }
  /** The calls that it answers to other servers. */
  readonly answers: readonly Answering[]
}

export interface AppContext {
  readonly database: Database
  readonly limits: Limits
  readonly traffic: Traffic
  readonly heartbeats: Heartbeats
  readonly report: Report
  readonly meters: HttpMeters
  /** Absent: no webhooks are sent. */
  readonly webhooks?: Webhooks | undefined
  /** undefined: no request is called slow. */
  readonly slow: SlowRequests | undefined
  readonly hotKeys: HotKeys
  readonly version: string
  readonly durability: Durability
  /** Absent: this process has the store to itself. */
  readonly member?: Member | undefined
}
