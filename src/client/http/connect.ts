import { COMMIT_OPTIONS_DEFAULT, Coordinator } from '../../coordinator/coordinator.js'
import type { DbBackend } from '../db-backend.js'
import { optionsOf, WAIT_MS } from '../options.js'
import { TIMEOUT_KINDS } from '../transaction-options.js'
import { Connection } from './connection.js'
import { HttpApi } from './http-api.js'
import { HttpAutocommit } from './http-autocommit.js'
import { HttpChanges } from './http-changes.js'
import { HttpLeases } from './http-leases.js'
import { HttpObservers } from './http-observers.js'
import { HttpTransport, isAway, TRANSPORT_KINDS, type TransportOptions } from './http-transport.js'

export interface ConnectOptions extends TransportOptions {
  /** Longest wait of a call for the locks of other transactions, in milliseconds, unless the call sets its own. Default 3000. */
  readonly lockWaitMs?: number | undefined
  /** Time limit of every call that has one, unless the call sets its own. Default: none. */
  readonly timeoutMs?: number | undefined
}

const connectOptions = optionsOf<ConnectOptions>('connect', {
  ...TRANSPORT_KINDS,
  ...TIMEOUT_KINDS,
  lockWaitMs: WAIT_MS,
})

/** A transaction up to this size commits in one request: another round trip would cost more than the bytes. */
const BATCH_BYTES = 1024 * 1024

/**
 * Connects to the server at `url`, such as `http://127.0.0.1:7400`. The first call sends the first request.
 * @throws TypeError when `url` is not an http or https URL, and for an unknown option or a wrong value.
 */
export function connect(url: string, options: ConnectOptions = {}): Connection {
  connectOptions(options)
  const { protocol, username, password, search, hash, href } = parseUrl(url)
  if ((protocol !== 'http:' && protocol !== 'https:') || `${username}${password}${search}${hash}` !== '')
    throw new TypeError(`"${url}" must be an http or https URL without user, query and fragment`)
  const transport = new HttpTransport(href.replace(/\/+$/, ''), options)
  const api = new HttpApi(transport)
  return new Connection(
    backendAt(transport, api, options.timeoutMs),
    transport,
    api,
    options.lockWaitMs,
    options.timeoutMs,
  )
}

function parseUrl(url: string): URL {
  try {
    return new URL(url)
  } catch (cause) {
    throw new TypeError(`"${url}" is not a URL`, { cause })
  }
}

function backendAt(transport: HttpTransport, api: HttpApi, timeoutMs: number | undefined): DbBackend {
  // `triesMax: 1`, because the transport repeats a request whose answer is lost.
  const coordinator = new Coordinator(api, { ...COMMIT_OPTIONS_DEFAULT, batchBytes: BATCH_BYTES, triesMax: 1 })
  return {
    name: 'this connection',
    autocommit: new HttpAutocommit(transport),
    coordinator,
    observers: new HttpObservers(transport),
    changes: new HttpChanges(transport, timeoutMs),
    leases: new HttpLeases(transport),
    isAway,
    during: (call) => call(),
    readTs: (signal) => api.withSignal(signal).tso(1),
    async close() {
      await coordinator.idle()
      transport.close()
    },
  }
}
