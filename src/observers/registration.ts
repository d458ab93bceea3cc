import type { KeyRange } from '../bytes/key-range.js'
import { integerOf } from '../errors/integer-of.js'
import { invalid } from '../errors/kv-error.js'
import { ATTEMPTS_MAX, BACKOFF_MS_MAX, DEPTH_MAX } from '../limits.js'
import { rangeFields, rangeIn } from '../percolator/codec/given-range.js'
import { asInteger, asOptionalBytes, packRecord, unpackRecord } from '../percolator/codec/record.js'
import { type GivenRange, keyRangeOf } from '../percolator/given-range.js'
import type { RecordKind } from '../store/record-table.js'
import type { SystemName } from '../store/system-records.js'
import type { Timestamp } from '../timestamp.js'
import { noSuchObserver, type RegisteredObserver } from './rules/observer.js'
import type { ObserverOptions } from './rules/observers-api.js'

export interface StoredObserver {
  readonly id: Timestamp
  readonly name: string
  readonly range: GivenRange
  readonly options: ObserverOptions
  /** 0: it has not taken effect. */
  readonly sinceTs: Timestamp
  readonly isPaused: boolean
}

/** Progress of a backfill. The record is removed when the backfill is complete. */
export interface StoredBackfill {
  /** Id of the observer. A name may be given to a new observer. */
  readonly id: Timestamp
  /** Every key up to here is done. */
  readonly after: Uint8Array | undefined
  /** End of the lease of the server that runs the backfill. 0: no server has it, or one process has the store to itself. */
  readonly untilMs?: number
}

const REGISTRATIONS = 'observer/' satisfies SystemName
/** Names of observers contain no slash. */
const BACKFILL = '/backfill'

const DEFAULTS: ObserverOptions = { maxAttempts: 16, backoffMs: 200, backoffMaxMs: 60_000, maxDepth: 64 }

export function nameOfRegistration(name: string): SystemName {
  return `${REGISTRATIONS}${name}`
}

export function nameOfBackfill(name: string): SystemName {
  return `${REGISTRATIONS}${name}${BACKFILL}`
}

function encodeObserver({ id, range, options, sinceTs, isPaused }: StoredObserver): Buffer {
  const { maxAttempts, backoffMs, backoffMaxMs, maxDepth } = options
  return packRecord([
    id,
    sinceTs,
    isPaused ? 1 : 0,
    ...rangeFields(range),
    maxAttempts,
    backoffMs,
    backoffMaxMs,
    maxDepth,
    Math.floor(Math.random() * 2 ** 48), // Makes each value of a record another one: see RecordKind.
  ])
}

function decodeObserver(name: string, bytes: Uint8Array): StoredObserver {
  const [id, sinceTs, isPaused, prefix, start, end, ...options] = unpackRecord(bytes, OBSERVER, 10)
  const [maxAttempts, backoffMs, backoffMaxMs, maxDepth] = options.map((option) => asInteger(option, OBSERVER))
  return {
    id: asInteger(id, OBSERVER),
    name,
    range: rangeIn([prefix, start, end], OBSERVER),
    options: {
      maxAttempts: maxAttempts as number,
      backoffMs: backoffMs as number,
      backoffMaxMs: backoffMaxMs as number,
      maxDepth: maxDepth as number,
    },
    sinceTs: asInteger(sinceTs, OBSERVER),
    isPaused: asInteger(isPaused, OBSERVER) === 1,
  }
}

export const OBSERVER_RECORDS: RecordKind<StoredObserver> = {
  prefix: REGISTRATIONS,
  encode: encodeObserver,
  decode: (name, record) => (name.endsWith(BACKFILL) ? undefined : decodeObserver(name, record)),
}

/** @param random makes every record different. */
export function encodeBackfill({ id, after, untilMs = 0 }: StoredBackfill, random: () => number): Buffer {
  return packRecord([id, after ?? null, untilMs, Math.floor(random() * 2 ** 48)])
}

export function decodeBackfill(bytes: Uint8Array): Required<StoredBackfill> {
  const [id, after, untilMs] = unpackRecord(bytes, BACKFILL_RECORD, 3)
  return {
    id: asInteger(id, BACKFILL_RECORD),
    after: asOptionalBytes(after, BACKFILL_RECORD),
    untilMs: asInteger(untilMs, BACKFILL_RECORD),
  }
}

const OBSERVER = 'observer'
const BACKFILL_RECORD = 'backfill'

/** @throws KvError `not_found`, also when the observer has not taken effect yet. */
export function required(name: string, stored: StoredObserver | undefined): StoredObserver {
  if (stored === undefined || stored.sinceTs === 0) throw noSuchObserver(name)
  return stored
}

export function registeredOf({ id, name, range, options, sinceTs }: StoredObserver): RegisteredObserver {
  return { id, name, range: keyRangeOf(range), maxDepth: options.maxDepth, sinceTs }
}

// ---- Requests

/** @throws KvError `invalid_argument` when no range is given, or it is not one (`keyRangeOf`). */
export function observedRangeOf(range: GivenRange): KeyRange {
  if (range.prefix === undefined && range.start === undefined && range.end === undefined)
    throw invalid('prefix', 'give prefix, or start, or end: the prefix "" is that of every key')
  return keyRangeOf(range)
}

export function optionsOf(given: Partial<ObserverOptions>): ObserverOptions {
  const option = (name: keyof ObserverOptions, field: string, max: number): number =>
    integerOf(field, given[name] ?? DEFAULTS[name], 0, max)
  return {
    maxAttempts: option('maxAttempts', 'max_attempts', ATTEMPTS_MAX),
    backoffMs: option('backoffMs', 'backoff_ms', BACKOFF_MS_MAX),
    backoffMaxMs: option('backoffMaxMs', 'backoff_max_ms', BACKOFF_MS_MAX),
    maxDepth: option('maxDepth', 'max_depth', DEPTH_MAX),
  }
}
