import { createRequire } from 'node:module'
import { BigtableSetupError } from './bigtable-setup-error.js'
import { printFailure } from './grpc-failures.js'
import type { CellChunk } from './row-chunks.js'
import type { RowFilter, RowMutation } from './row-filters.js'

/** An optional peer: it brings 200 packages, and few users need it. */
const PACKAGE: string = '@google-cloud/bigtable'
/** The generated clients. The main file also loads measuring and exporting code, which takes as long again. */
const CLIENTS = `${PACKAGE}/build/src/v2/index.js`
/** In a clone of this package, npm installs an optional peer only with `--save-prod`. */
const INSTALL = 'npm install --save-prod @google-cloud/bigtable@6.5.1'
const HTTPS_PORT = 443
const CHANNELS_MAX = 16
/** A further connection is opened when each has this many calls in flight. */
const CALLS_PER_CHANNEL = 50

class BigtableMissing extends BigtableSetupError {
  override readonly name = 'BigtableMissing'

  constructor(options?: ErrorOptions) {
    super(`Google's client of Bigtable is not installed: ${INSTALL}`, options)
  }
}

export interface CallOptions {
  readonly timeout: number
  readonly retry?: null
  readonly retryRequestOptions?: { readonly retries: 0; readonly noResponseRetries: 0 }
  readonly otherArgs: { readonly headers: Readonly<Record<string, string>> }
}

/**
 * `google.bigtable.v2.FeatureFlags` with `reverse_scans` and `last_scanned_row_responses`. Without the first Bigtable refuses
 * descending reads; without the second a read that finds nothing for long does not say how far it has come.
 */
const FEATURES = Buffer.from([0x08, 0x01, 0x20, 0x01]).toString('base64')

/** The client writes into the headers, so each call has its own. */
function headers(): CallOptions['otherArgs'] {
  return { headers: { 'bigtable-features': FEATURES } }
}

export function callOptions(ms: number): CallOptions {
  return { timeout: ms, retry: null, otherArgs: headers() }
}

/** For calls that stream answers, which Google's client repeats after seconds by default. */
export function streamOptions(ms: number): CallOptions {
  return { timeout: ms, retryRequestOptions: { retries: 0, noResponseRetries: 0 }, otherArgs: headers() }
}

export interface AnswerStream<T> {
  on(event: 'data', listener: (message: T) => void): this
  on(event: 'error', listener: (error: Error) => void): this
  on(event: 'end' | 'close', listener: () => void): this
  cancel(): void
}

export function drain<T>(stream: AnswerStream<T>, each: (message: T) => void): Promise<void> {
  return new Promise((resolve, reject) => {
    stream.on('error', reject)
    stream.on('end', resolve)
    stream.on('close', () => reject(new Error('the answer was broken off')))
    stream.on('data', (message) => {
      try {
        each(message)
      } catch (error) {
        reject(error)
        stream.cancel()
      }
    })
  })
}

interface Client {
  initialize(): Promise<unknown>
  close(): Promise<void>
}

interface OnTable {
  readonly tableName: string
  readonly appProfileId: string
}

interface ReadRowsRequest extends OnTable {
  readonly rows: object
  readonly filter: RowFilter
  readonly rowsLimit: number
  readonly reversed: boolean
}

export interface ReadRowsAnswer {
  readonly chunks: readonly CellChunk[]
  /** Rows up to this one were examined; those not returned have no matching cell. */
  readonly lastScannedRowKey: Buffer
}

interface CheckAndMutateRowRequest extends OnTable {
  readonly rowKey: Buffer
  readonly predicateFilter: RowFilter
  readonly trueMutations?: readonly RowMutation[]
  readonly falseMutations?: readonly RowMutation[]
}

export interface DataClient extends Client {
  readRows(request: ReadRowsRequest, options: CallOptions): AnswerStream<ReadRowsAnswer>
  checkAndMutateRow(
    request: CheckAndMutateRowRequest,
    options: CallOptions,
  ): Promise<readonly [{ readonly predicateMatched: boolean }, ...unknown[]]>
}

export interface GcRule {
  readonly maxNumVersions?: number
  readonly maxAge?: unknown
  readonly intersection?: { readonly rules: readonly GcRule[] } | null
  readonly union?: { readonly rules: readonly GcRule[] } | null
}

export interface TableMessage {
  readonly columnFamilies: Readonly<Record<string, { readonly gcRule: GcRule | null }>>
}

export interface TableAdminClient extends Client {
  getTable(request: { readonly name: string }, options: CallOptions): Promise<readonly [TableMessage, ...unknown[]]>
  createTable(
    request: { readonly parent: string; readonly tableId: string; readonly table: object },
    options: CallOptions,
  ): Promise<unknown>
  modifyColumnFamilies(
    request: {
      readonly name: string
      readonly modifications: readonly { readonly id: string; readonly create: { readonly gcRule: GcRule } }[]
    },
    options: CallOptions,
  ): Promise<unknown>
  generateConsistencyToken(
    request: { readonly name: string },
    options: CallOptions,
  ): Promise<readonly [{ readonly consistencyToken: string }, ...unknown[]]>
  checkConsistency(
    request: { readonly name: string; readonly consistencyToken: string },
    options: CallOptions,
  ): Promise<readonly [{ readonly consistent: boolean }, ...unknown[]]>
}

export interface InstanceAdminClient extends Client {
  getAppProfile(
    request: { readonly name: string },
    options: CallOptions,
  ): Promise<readonly [{ readonly singleClusterRouting?: { readonly clusterId: string } | null }, ...unknown[]]>
}

interface Gax {
  readonly grpc: { readonly credentials: { createInsecure(): unknown } }
}

interface Clients {
  readonly BigtableClient: new (options: object) => DataClient
  readonly BigtableTableAdminClient: new (options: object) => TableAdminClient
  readonly BigtableInstanceAdminClient: new (options: object) => InstanceAdminClient
}

export async function openDataClient(): Promise<DataClient> {
  const { BigtableClient } = await loadClients()
  return initialized(new BigtableClient({ ...connectionOptions(), ...channelPool() }))
}

export async function openTableAdminClient(): Promise<TableAdminClient> {
  const { BigtableTableAdminClient } = await loadClients()
  return initialized(new BigtableTableAdminClient(connectionOptions()))
}

export async function openInstanceAdminClient(): Promise<InstanceAdminClient> {
  const { BigtableInstanceAdminClient } = await loadClients()
  return initialized(new BigtableInstanceAdminClient(connectionOptions()))
}

async function loadClients(): Promise<Clients> {
  try {
    // Versions without this path export them from their main file.
    return (await import(CLIENTS).catch(
      async () => ((await import(PACKAGE)) as { readonly v2: Clients }).v2,
    )) as Clients
  } catch (error) {
    if (isMissing(error)) throw new BigtableMissing({ cause: error })
    throw error
  }
}

function isMissing(error: unknown): boolean {
  const { code, message } = error as NodeJS.ErrnoException
  return (code === 'ERR_MODULE_NOT_FOUND' || code === 'MODULE_NOT_FOUND') && message.includes(PACKAGE)
}

async function initialized<T extends Client>(client: T): Promise<T> {
  try {
    await client.initialize()
  } catch (error) {
    throw new BigtableSetupError(`Google's client of Bigtable can't start: ${printFailure(error)}`, { cause: error })
  }
  return client
}

function connectionOptions(): object {
  const host = process.env['BIGTABLE_EMULATOR_HOST']
  const connection = {
    // Notices a silently lost connection before many calls have waited for it.
    'grpc.keepalive_time_ms': 30_000,
    'grpc.keepalive_timeout_ms': 10_000,
    'grpc.initial_reconnect_backoff_ms': 100,
    'grpc.max_reconnect_backoff_ms': 2000,
  }
  return host === undefined || host === '' ? connection : { ...connection, ...emulatorOptions(host) }
}

/** Google runs some 100 calls per connection, and makes further ones wait. */
function channelPool(): object {
  const { gax, require } = ownGax()
  const { createGcpApiConfig, gcpCallInvocationTransformer, gcpChannelFactoryOverride } = require('grpc-gcp')(gax.grpc)
  return {
    'grpc.callInvocationTransformer': gcpCallInvocationTransformer,
    'grpc.channelFactoryOverride': gcpChannelFactoryOverride,
    'grpc.gcpApiConfig': createGcpApiConfig({
      channelPool: { minSize: 2, maxSize: CHANNELS_MAX, maxConcurrentStreamsLowWatermark: CALLS_PER_CHANNEL },
    }),
  }
}

/** The package has its own gRPC, which this package may be unable to resolve. */
function ownGax(): { readonly gax: Gax; readonly require: NodeJS.Require } {
  const here = createRequire(import.meta.url)
  const require = createRequire(here.resolve(PACKAGE))
  return { gax: require('google-gax'), require }
}

/** As in Google's own tools: BIGTABLE_EMULATOR_HOST is host:port of a server without TLS and credentials. */
function emulatorOptions(host: string): object {
  const [, name, port = HTTPS_PORT] = /^(.+?)(?::(\d+))?$/.exec(host) ?? []
  return {
    servicePath: name,
    port: Number(port),
    sslCreds: ownGax().gax.grpc.credentials.createInsecure(),
    // Otherwise the client asks for the credentials' universe, which takes seconds without credentials.
    auth: { getUniverseDomain: async () => 'googleapis.com' },
  }
}
