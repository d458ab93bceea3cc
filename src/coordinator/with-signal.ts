import type { PercolatorApi } from '../percolator/api.js'

/** The same calls, interrupted when the signal is aborted. Without a signal, or support in the api: `api` itself. */
export function withSignal(api: PercolatorApi, signal: AbortSignal | undefined): PercolatorApi {
  return (signal && api.withSignal?.(signal)) ?? api
}
