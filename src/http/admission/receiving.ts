import type { Limits } from '../../limits.js'

/** How often per timeout Node looks for requests that take too long to arrive. */
const CHECKS_PER_TIMEOUT = 4
const CHECK_MS_MAX = 5000

/** Options of fastify and Node that bound a request while it arrives, before any hook runs. */
export function receivingOptions({ headerBytesMax, headerMsMax, requestMsMax, idleMsMax }: Limits) {
  // Node refuses a `headersTimeout` above the `requestTimeout`.
  const headersTimeout = requestMsMax === 0 ? headerMsMax : Math.min(headerMsMax, requestMsMax)
  return {
    http: {
      maxHeaderSize: headerBytesMax,
      requireHostHeader: false, // `headError` refuses a request without one. Node's own answer would lack the safe headers.
      headersTimeout,
      requestTimeout: requestMsMax,
      connectionsCheckingInterval: Math.min(CHECK_MS_MAX, Math.ceil(headersTimeout / CHECKS_PER_TIMEOUT)),
    },
    requestTimeout: requestMsMax,
    keepAliveTimeout: idleMsMax,
  }
}
