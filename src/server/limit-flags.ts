import { DEFAULT_LIMITS, type Limits } from '../limits.js'
import { type Flag, type FlagReader, integer } from './flags.js'

interface LimitFlag {
  readonly value: 'BYTES' | 'COUNT' | 'MS'
  readonly help: string
  readonly min: number
  readonly max: number
}

const GIB = 2 ** 30
const bytes = (help: string, min: number, max = 2 ** 40): LimitFlag => ({ value: 'BYTES', help, min, max })
const count = (help: string, min: number, max = 1_000_000_000): LimitFlag => ({ value: 'COUNT', help, min, max })
const ms = (help: string, min: number, max = 24 * 60 * 60 * 1000): LimitFlag => ({ value: 'MS', help, min, max })

/** `keyBytesMax` is `--key-bytes-max`. docs/operations.md has the same table. */
const LIMIT_FLAGS: Readonly<Record<keyof Limits, LimitFlag>> = {
  keyBytesMax: bytes('longest key', 1, 8192),
  valueBytesMax: bytes('longest value', 1, GIB / 4),
  bodyBytesMax: bytes('longest request body', 1024, GIB / 2),
  requestKeysMax: count(
    'keys, mutations, checks or ops in one request, and keys of an interactive transaction',
    1,
    1_000_000,
  ),
  scanLimitMax: count('pairs in one page of a scan', 1, 1_000_000),
  pageBytesMax: bytes('of keys and values in one page of a scan', 1, GIB / 16),
  answerBytesMax: bytes('of keys and values in any other answer', 1024, GIB / 16),

  txnBytesMax: bytes('written by one interactive transaction', 1024, GIB),
  txnsBytesMax: bytes('written by all open interactive transactions', 1024),
  txnsMax: count('open interactive transactions', 1),
  locksMax: count('locks that stand', 1),

  observersMax: count('observers', 1, 10_000),
  claimsMax: count('cells that are claimed or delayed', 1, 10_000_000),
  consumersMax: count('consumers of the change feed', 1, 10_000),
  leasesMax: count('leases that are held', 1, 1_000_000),
  feedBytesMax: bytes('of changes that the feed keeps in memory', 1024),
  holdMsMax: ms('for which a consumer or a stream may hold collection back', 1000),

  outcomeBytesMax: bytes('stored for one request with an Idempotency-Key', 1024, GIB / 16),
  outcomesBytesMax: bytes('stored for all of them', 1024),

  requestsMax: count('requests in flight', 1),
  bodiesBytesMax: bytes('of the bodies of requests in flight', 1024),
  answersBytesMax: bytes('of answers not taken yet', 1024),
  streamsMax: count('NDJSON scans and backups in flight', 1),
  watchesMax: count('streams of changes, and requests that wait for a change or a claim', 0),
  writeQueueMax: count('batches that wait for the disk', 1),
  writeQueueBytesMax: bytes('of batches that wait for the disk', 1024),
  loopDelayMsMax: ms('delay of the event loop, over and over; 0: any', 0),

  connectionsMax: count('connections', 1),
  headerBytesMax: bytes('of request line and headers', 1024, GIB / 1024),
  headerMsMax: ms('for the headers of a request to arrive', 1),
  requestMsMax: ms('for a request to arrive, but a restore; 0: any', 0),
  idleMsMax: ms('of a connection between requests', 1),
  stalledMsMax: ms('of a client that takes nothing of a long answer, or sends nothing of a restore', 1),
}

type KebabCase<S extends string> = S extends `${infer Head}${infer Tail}`
  ? `${Head extends Lowercase<Head> ? Head : `-${Lowercase<Head>}`}${KebabCase<Tail>}`
  : S
type LimitFlagName = KebabCase<keyof Limits>

const names = Object.keys(LIMIT_FLAGS) as (keyof Limits)[]
const flagOf = (name: keyof Limits) => name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`) as LimitFlagName

export const limitFlags = Object.fromEntries(
  names.map((name) => {
    const { value, help } = LIMIT_FLAGS[name]
    return [flagOf(name), { value, help, default: String(DEFAULT_LIMITS[name]) }]
  }),
) as Record<LimitFlagName, Flag>

/** @throws UsageError */
export function readLimits({ required }: Pick<FlagReader<LimitFlagName>, 'required'>): Limits {
  const limits = names.map((name) => [
    name,
    integer(required(flagOf(name)), LIMIT_FLAGS[name].min, LIMIT_FLAGS[name].max),
  ])
  return Object.fromEntries(limits) as Record<keyof Limits, number>
}
