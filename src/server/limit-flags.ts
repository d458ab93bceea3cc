import { DEFAULT_LIMITS, type Limits } from '../limits.js'
import { type Flag, type FlagReader, integer, milliseconds, sizeBytes } from './flags.js'

interface LimitFlag {
  readonly value: 'BYTES' | 'COUNT' | 'MS'
  readonly help: string
  /** What the server does beyond the limit, in the words of docs/flags.md. */
  readonly beyond: string
  readonly min: number
  readonly max: number
}

const GIB = 2 ** 30
const DAY_MS = 24 * 60 * 60 * 1000
const unit =
  (value: LimitFlag['value'], maxByDefault: number) =>
  (help: string, beyond: string, min: number, max = maxByDefault): LimitFlag => ({ value, help, beyond, min, max })
const bytes = unit('BYTES', 2 ** 40)
const count = unit('COUNT', 1_000_000_000)
const ms = unit('MS', DAY_MS)

/** `keyBytesMax` is `--key-bytes-max`. docs/flags.md is made from this table. */
const LIMIT_FLAGS: Readonly<Record<keyof Limits, LimitFlag>> = {
  keyBytesMax: bytes('longest key, up to 8192', '413', 1, 8192),
  valueBytesMax: bytes('longest value, up to 256 MiB', '413', 1, GIB / 4),
  bodyBytesMax: bytes('longest body of a request other than a PUT', '413', 1024, GIB / 2),
  requestKeysMax: count(
    'keys, mutations, checks or ops in one request; keys that one interactive transaction writes or locks',
    '413',
    1,
    1_000_000,
  ),
  scanLimitMax: count('highest limit of a scan', '400', 1, 1_000_000),
  pageBytesMax: bytes('keys and values in one page of GET /v1/kv', 'the page ends there, with a cursor', 1, GIB / 16),
  answerBytesMax: bytes(
    'memory of any other answer: keys, values, and 200 bytes for each of them',
    '413',
    1024,
    GIB / 16,
  ),

  txnBytesMax: bytes(
    'written by one interactive transaction, or remembered of its reads where it is serializable',
    '413',
    1024,
    GIB,
  ),
  txnsBytesMax: bytes('the same of all that are open', '503 to writes in them, and to `begin`', 1024),
  txnsMax: count('interactive transactions that are open', '503 to `begin`', 1),
  locksMax: count('locks that stand; each takes some 1.4 KB of memory', '503 to writes and to lock requests', 1),

  observersMax: count('observers', '503 to `PUT` of a new one', 1, 10_000),
  claimsMax: count(
    'cells of all observers that are claimed or delayed; as many parked ones are in memory, others on disk',
    '503 to claims, until some are done',
    1,
    10_000_000,
  ),
  consumersMax: count('consumers of the change feed', '503 to `PUT` of a new one', 1, 10_000),
  leasesMax: count('leases that are held, and those that have just ended', '503 to `PUT` of another one', 1, 1_000_000),
  feedBytesMax: bytes(
    'changes that the feed keeps in memory for streams that have caught up',
    'streams read the log on disk',
    1024,
  ),
  holdMsMax: ms(
    'time for which a consumer or an open stream may hold collection back',
    '410 to those that lag further',
    1000,
  ),

  outcomeBytesMax: bytes(
    'stored for one request with an Idempotency-Key',
    '413, before anything is written',
    1024,
    GIB / 16,
  ),
  outcomesBytesMax: bytes(
    'the same of all that are stored, in up to twenty minutes; of each caller half of it',
    '503 to writes with an `Idempotency-Key`',
    1024,
  ),

  requestsMax: count('requests in flight, waiting ones included', '503', 1),
  bodiesBytesMax: bytes(
    'bodies of the requests in flight, as far as they have arrived; one alone always fits, and 16 KiB of each',
    '503',
    1024,
  ),
  answersBytesMax: bytes('answers that are read, or not taken yet by their clients', '503 to reads and writes', 1024),
  streamsMax: count('NDJSON scans and backups in flight', '503', 1),
  watchesMax: count(
    'streams of changes, and requests that wait for a change, a claim or a lease; they do not count as requests in flight',
    '503 to those that would wait',
    0,
  ),
  writeQueueMax: count('batches that wait for the disk', '503 to writes', 1),
  writeQueueBytesMax: bytes('the same in bytes', '503 to writes', 1024),
  loopDelayMsMax: ms('delay of the event loop, two times in a row; 0: any', '503', 0),

  connectionsMax: count(
    'connections; keep it above --watches-max, so that others are still answered',
    'closed at once',
    1,
  ),
  headerBytesMax: bytes('request line and headers', '413, closed', 1024, GIB / 1024),
  headerMsMax: ms('from a connection, or the first byte of a request, to the end of its headers', '408, closed', 1),
  requestMsMax: ms("the same to the end of its body, but a restore's; 0: any", '408, closed', 0),
  idleMsMax: ms('between two requests on a connection', 'closed', 1),
  stalledMsMax: ms(
    'of a client that takes nothing of an answer of 16 KiB or more, or of a stream, or sends nothing of a restore',
    'closed',
    1,
  ),
}

type KebabCase<S extends string> = S extends `${infer Head}${infer Tail}`
  ? `${Head extends Lowercase<Head> ? Head : `-${Lowercase<Head>}`}${KebabCase<Tail>}`
  : S
type LimitFlagName = KebabCase<keyof Limits>

const names = Object.keys(LIMIT_FLAGS) as (keyof Limits)[]
const flagOf = (name: keyof Limits) => name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`) as LimitFlagName

export const limitFlags = Object.fromEntries(
  names.map((name) => {
    const { value, help, beyond } = LIMIT_FLAGS[name]
    return [flagOf(name), { value, help, beyond, default: String(DEFAULT_LIMITS[name]) }]
  }),
) as Record<LimitFlagName, Flag & { readonly beyond: string }>

const READERS = { BYTES: sizeBytes, COUNT: integer, MS: milliseconds }

export function readLimits({ required }: Pick<FlagReader<LimitFlagName>, 'required'>): Limits {
  const limits = names.map((name) => {
    const { value, min, max } = LIMIT_FLAGS[name]
    return [name, READERS[value](required(flagOf(name)), min, max)]
  })
  return Object.fromEntries(limits) as Record<keyof Limits, number>
}
