import { isIPv6 } from 'node:net'
import type { GcOptions } from '../gc/gc-worker.js'
import { isLoopback } from '../http/connections/loopback.js'
import {
  BLOCK_CACHE_BYTES_DEFAULT,
  BLOCK_CACHE_BYTES_MAX,
  CACHE_BYTES_DEFAULT,
  type Limits,
  TIMER_MS_MAX,
} from '../limits.js'
import { DURABILITIES, type Durability } from '../store/durability.js'
import type { LevelTuning } from '../store/leveldb/engine/level-engine.js'
import { UnusableTable } from '../store/table/layout/unusable-table.js'
import { Targets } from '../webhooks/targets.js'
import {
  durationMs,
  type Flags,
  type Given,
  integer,
  milliseconds,
  notEmpty,
  oneOf,
  readFlags,
  sizeBytes,
  UsageError,
} from './flags.js'
import { limitFlags, readLimits } from './limit-flags.js'
import { isEveryAddress } from './reachable-name.js'
import type { TlsPaths } from './secret-files.js'
import { type SharedTable, sharedTableAt } from './shared-table.js'
import { tracesUrl } from './traces-url.js'

export interface Config {
  readonly host: string
  /** 0: any free port. */
  readonly port: number
  readonly data: string
  readonly durability: Durability
  /** `leveldb`: a directory of this machine. */
  readonly store: 'leveldb' | SharedTable
  /** URL at which other servers of the same table reach this one; absent: the address that it listens on. */
  readonly advertise: string | undefined
  readonly logLevel: (typeof LOG_LEVELS)[number]
  /** Absent: as stdout asks for. */
  readonly logFormat: LogFormat | undefined
  readonly limits: Limits
  readonly cacheBytesMax: number
  readonly tuning: LevelTuning
  readonly gc: GcOptions
  readonly tokenFile: string | undefined
  readonly tls: TlsPaths | undefined
  readonly pidFile: string | undefined
  /** Allows any address without tokens: everybody who reaches the port may do anything. */
  readonly insecure: boolean
  readonly fastLane: boolean
  readonly kvConnect: boolean
  /** 0: slow requests are not logged. */
  readonly slowMs: number
  /** Absent: the server sends no webhooks. */
  readonly webhookTargets: Targets | undefined
  /** URL that spans are posted to. undefined: requests are not traced. */
  readonly tracesUrl: string | undefined
}

const LOG_FORMATS = ['text', 'json'] as const
export type LogFormat = (typeof LOG_FORMATS)[number]
const LOG_LEVELS = ['silent', 'fatal', 'error', 'warn', 'info', 'debug', 'trace'] as const

const TEN_YEARS_MS = 10 * 366 * 24 * 60 * 60 * 1000

export const SERVE_FLAGS = {
  host: { value: 'ADDRESS', help: 'address to listen on', default: '127.0.0.1' },
  port: { value: 'PORT', help: 'port to listen on; 0 takes any free port', default: '7400' },
  data: {
    value: 'DIR',
    help: 'directory of the database, made if it is missing; one process at a time',
    default: './data',
  },
  durability: {
    value: 'sync|1s|async',
    help: 'sync: fsync before every answer; 1s: within a second after it; async: when the system sees fit; a crash of the machine can lose what is not synced (docs/operations.md#crashes)',
    default: 'sync',
  },
  store: {
    value: 'STORE',
    help: 'leveldb, or a table that many servers may share: postgres://USER@HOST/DATABASE (docs/postgres.md) or bigtable://PROJECT/INSTANCE/TABLE (docs/bigtable.md)',
    default: 'leveldb',
  },
  advertise: {
    value: 'URL',
    help: 'where other servers of the same table reach this one; by default the address that it listens on',
  },
  'log-level': {
    value: 'LEVEL',
    help: `${LOG_LEVELS.join(', ')}; requests are logged from debug on`,
    default: 'info',
  },
  'log-format': {
    value: 'text|json',
    help: 'of the log on stdout; by default text on a terminal and for the journal of systemd, else json, a line each',
  },
  'cache-bytes-max': { value: 'BYTES', help: 'cache of newest versions', default: String(CACHE_BYTES_DEFAULT) },
  'block-cache-bytes': {
    value: 'BYTES',
    help: "LevelDB's cache of uncompressed blocks: docs/operations.md#uncached-reads",
    default: String(BLOCK_CACHE_BYTES_DEFAULT),
  },
  compression: { value: 'snappy|none', help: 'of blocks that are written from now on', default: 'snappy' },
  'gc-life-time': {
    value: 'TIME',
    help: 'how long old versions stay readable: 90s, 10m, 12h, 7d; 0: until a client calls gc',
    default: '10m',
  },
  'gc-interval': { value: 'TIME', help: 'time between two collections of old versions', default: '10m' },
  'token-file': {
    value: 'FILE',
    help: 'tokens that are let in, one per line: docs/security.md#tokens; SIGHUP reads it again',
  },
  'tls-cert-file': {
    value: 'FILE',
    help: 'PEM certificate, with its chain; with the key, the server speaks HTTPS only; SIGHUP reads it again',
  },
  'tls-key-file': { value: 'FILE', help: 'PEM key of the certificate' },
  'fast-lane': {
    value: 'on|off',
    help: 'off: every request goes through node:http, which is slower; answers are the same (src/http/README.md#the-fast-lane)',
    default: 'on',
  },
  'kv-connect': {
    help: 'serve the remote protocol of Deno KV at /kv-connect/{database}, (docs/deno-kv.md)',
  },
  'webhook-targets': {
    value: 'URLS',
    help: 'send webhooks, to URLs that begin with one of these, with commas in between (docs/webhooks.md)',
  },
  'slow-ms': {
    value: 'MS',
    help: 'requests that take this long are logged, with the places where their time went (docs/operations.md#slow-requests); 0: none',
    default: '1000',
  },
  'otlp-endpoint': {
    value: 'URL',
    help: 'collector that traces are sent to (docs/operations.md#traces); the standard OTEL_* variables do it too',
  },
  'pid-file': { value: 'FILE', help: 'holds the pid while the server runs, for kill -HUP; written once it is ready' },
  insecure: { help: 'listen on any address without tokens: everybody who reaches the port may do anything' },
  ...limitFlags,
} as const satisfies Flags

export function readConfig(args: readonly string[], env: NodeJS.ProcessEnv): Config {
  const flags = readFlags(SERVE_FLAGS, args, env)
  const { required, optional, isSet } = flags
  const path = (name: 'pid-file' | 'token-file' | 'tls-cert-file' | 'tls-key-file'): string | undefined => {
    const given = optional(name)
    return given && notEmpty(given)
  }
  const host = hostOf(required('host'))
  const tokenFile = path('token-file')
  const insecure = isSet('insecure')
  if (tokenFile === undefined && !insecure && !isLoopback(host))
    throw new UsageError(`--host ${host} lets others in: give --token-file, or --insecure if they may do anything`)
  const logFormat = optional('log-format')
  const store = storeOf(required('store'))
  const advertise = urlOf(optional('advertise'))
  if (store !== 'leveldb') requireOneMachine(host, advertise)
  return {
    host,
    tokenFile,
    tls: tlsPaths(path('tls-cert-file'), path('tls-key-file')),
    insecure,
    pidFile: path('pid-file'),
    fastLane: oneOf(required('fast-lane'), ['on', 'off']) === 'on',
    kvConnect: isSet('kv-connect'),
    slowMs: milliseconds(required('slow-ms'), 0, TIMER_MS_MAX),
    webhookTargets: targetsOf(optional('webhook-targets')),
    tracesUrl: tracesUrl(optional('otlp-endpoint'), env),
    port: integer(required('port'), 0, 65_535),
    data: notEmpty(required('data')),
    durability: oneOf(required('durability'), DURABILITIES),
    store,
    advertise,
    logLevel: oneOf(required('log-level'), LOG_LEVELS),
    logFormat: logFormat && oneOf(logFormat, LOG_FORMATS),
    limits: readLimits(flags),
    cacheBytesMax: sizeBytes(required('cache-bytes-max'), 0, 2 ** 40),
    tuning: {
      blockCacheBytes: sizeBytes(required('block-cache-bytes'), 0, BLOCK_CACHE_BYTES_MAX),
      compression: oneOf(required('compression'), ['snappy', 'none']),
    },
    gc: {
      lifeTimeMs: durationMs(required('gc-life-time'), 0, TEN_YEARS_MS),
      intervalMs: durationMs(required('gc-interval'), 1, TIMER_MS_MAX),
    },
  }
}

/** Refuses a URL at which every machine would reach itself. */
function requireOneMachine(host: string, advertise: string | undefined): void {
  const [from, name] = advertise === undefined ? ['--host', host] : ['--advertise', new URL(advertise).hostname]
  if (!isEveryAddress(name)) return
  throw new UsageError(
    `${from} ${name} does not say where other servers of the table reach this one: give --advertise with the address of this machine`,
  )
}

/** An IPv6 address may be in brackets, as in URLs, and in any of its spellings. */
function hostOf(given: Given): string {
  const text = notEmpty(given)
  const address = text.startsWith('[') && text.endsWith(']') ? text.slice(1, -1) : text
  if (isIPv6(address)) return address.includes('%') ? address : new URL(`http://[${address}]`).hostname.slice(1, -1)
  if (address !== text || /[\s/:@[\]]/.test(text))
    throw new UsageError(`${given.from} must be a name or an address, without scheme and port, not "${text}"`)
  return text
}

function storeOf(given: Given): Config['store'] {
  try {
    return (
      sharedTableAt(given.text) ?? oneOf(given, ['leveldb'], 'leveldb, or an address of postgres:// or bigtable://')
    )
  } catch (error) {
    if (!(error instanceof UnusableTable)) throw error
    throw new UsageError(`${given.from}: ${error.message}`)
  }
}

function urlOf(given: Given | undefined): string | undefined {
  if (given === undefined) return undefined
  const url = URL.canParse(given.text) ? new URL(given.text) : undefined
  if (
    url === undefined ||
    !['http:', 'https:'].includes(url.protocol) ||
    `${url.search}${url.hash}${url.username}${url.password}` !== ''
  )
    throw new UsageError(`${given.from} must be an http or https URL, not "${given.text}"`)
  return given.text.replace(/\/$/, '')
}

function targetsOf(given: Given | undefined): Targets | undefined {
  const targets = given && Targets.parse(given.text)
  if (typeof targets === 'string') throw new UsageError(`${given?.from}: ${targets}`)
  return targets
}

function tlsPaths(cert: string | undefined, key: string | undefined): TlsPaths | undefined {
  if (cert !== undefined && key !== undefined) return { cert, key }
  if (cert !== undefined || key !== undefined) throw new UsageError('--tls-cert-file and --tls-key-file go together')
  return undefined
}
