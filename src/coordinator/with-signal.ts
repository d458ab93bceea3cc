import type { PercolatorApi } from '../percolator/api.js'

export function withSignal(api: PercolatorApi, signal: AbortSignal | undefined): PercolatorApi {
  return (signal && api.withSignal?.(signal)) ?? api
}
