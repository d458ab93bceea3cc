import type { TimeoutOptions } from './transaction-options.js'

export interface NamedCallOptions extends TimeoutOptions {
  /** Time that the call waits on the server. Its deadline is counted after that. */
  readonly waitMs?: number | undefined
  /** The call changes nothing, so its outcome is known. */
  readonly isRead?: boolean | undefined
}

export type NamedCall<Api> = <T>(call: (api: Api) => Promise<T>, options?: NamedCallOptions) => Promise<T>
