import type { Limits } from '../../limits.js'

/** How often Node looks for requests that take too long to arrive. */
const CHECKS_PER_TIMEOUT = 4
const CHECK_MS_MAX = 5000

/** What bounds requests before there are any: options of fastify, and through it of Node's server. */
export function receivingOptions({ headerBytesMax, headerMsMax, requestMsMax, idleMsMax }: Limits) {
  // Node takes no time for the headers that is above the one for the request.
  const headersTimeout = requestMsMax === 0 ? headerMsMax : Math.min(headerMsMax, requestMsMax)
  return {
    http: {
      maxHeaderSize: headerBytesMax,
      requireHostHeader: false, // Node's own answer would lack the headers that keep browsers safe: see `withoutHost`.
      headersTimeout,
      requestTimeout: requestMsMax,
      connectionsCheckingInterval: Math.min(CHECK_MS_MAX, Math.ceil(headersTimeout / CHECKS_PER_TIMEOUT)),
    },
    requestTimeout: requestMsMax,
    keepAliveTimeout: idleMsMax,
  }
}
