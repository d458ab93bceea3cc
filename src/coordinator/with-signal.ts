import type { PercolatorApi } from '../percolator/api.js'

/** The same calls, broken off when the signal is aborted, where there is one and the api knows how. */
export function withSignal(api: PercolatorApi, signal: AbortSignal | undefined): PercolatorApi {
  return (signal && api.withSignal?.(signal)) ?? api
}
