import type { TimeoutOptions } from './transaction-options.js'

/** How a call about something that has a name ends: an observer, a consumer, a lease. */
export interface NamedCallOptions extends TimeoutOptions {
  /** How long it waits on the server by itself. The time of its deadline begins after that. */
  readonly waitMs?: number | undefined
  /** It changes nothing, so its outcome is known. */
  readonly isRead?: boolean | undefined
}

export type NamedCall<Api> = <T>(call: (api: Api) => Promise<T>, options?: NamedCallOptions) => Promise<T>
