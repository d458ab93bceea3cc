import type { Selection } from '../../changes/rules/changes-api.js'
import { type FeedPosition, parseFeedPosition } from '../../changes/rules/feed-position.js'
import { FEED_RANGES_MAX, HEARTBEAT_MS_MAX, HEARTBEAT_MS_MIN } from '../../limits.js'
import type { Timestamp } from '../../timestamp.js'
import { AS, type As, type Bytes, toBytes, toKeys } from '../bytes.js'
import { keyRangeOf } from '../key-range.js'
import { BOOLEAN, BYTES, type Kinds, kind, optionsOf, SIGNAL, SINCE_TS, TEXT, wholeUpTo } from '../options.js'

/** The union of prefixes and keys, or one range. Default: every key. */
export interface SelectionOptions {
  readonly prefix?: Bytes | undefined
  readonly prefixes?: readonly Bytes[] | undefined
  readonly keys?: readonly Bytes[] | undefined
  readonly start?: Bytes | undefined
  readonly end?: Bytes | undefined
}

export interface ChangesOptions<A extends As = As, K extends boolean = boolean, O extends boolean = boolean>
  extends SelectionOptions {
  /** Exclusive: delivers everything committed after it; 0: since the beginning. Default: the time of the call. */
  readonly sinceTs?: Timestamp | undefined
  /** Continues after the `position` of a transaction of an earlier loop. */
  readonly position?: string | undefined
  /**
   * Delivers the pairs of a snapshot first, then everything committed after it. Together with a `position` inside a snapshot,
   * continues that snapshot.
   */
  readonly snapshot?: boolean | undefined
  /** Continues from the position of this consumer, whose range replaces the selection. */
  readonly consumer?: string | undefined
  /** Leaves values out. The server does not send them. */
  readonly keysOnly?: K | undefined
  /** Adds the version before it to each change. */
  readonly oldValues?: O | undefined
  /** The type in which keys and values are returned. Default `text`. */
  readonly as?: A | undefined
  /** Ends the loop. */
  readonly signal?: AbortSignal | undefined
  /**
   * `onResolved` is called at least this often, in milliseconds. A server that is silent for three times as long counts as dead.
   * Default 5000.
   */
  readonly heartbeatMs?: number | undefined
  /**
   * Called when the loop has received everything at or below `resolvedTs`, also when nothing has changed. The loop awaits it. An
   * error that it throws ends the loop.
   */
  readonly onResolved?: ((resolvedTs: Timestamp) => unknown) | undefined
  /** Called when a server cannot be reached, before the loop connects again. An error that it throws ends the loop. */
  readonly onError?: ((error: unknown) => void) | undefined
}

const LIST = kind<readonly Bytes[]>(`an array of 1 to ${FEED_RANGES_MAX} strings or Uint8Arrays`, (value) => {
  return Array.isArray(value) && value.length > 0 && value.every(BYTES.accepts)
})
const FUNCTION = kind<() => unknown>('a function', (value) => typeof value === 'function')

const KINDS: Kinds<ChangesOptions> = {
  prefix: BYTES,
  prefixes: LIST,
  keys: LIST,
  start: BYTES,
  end: BYTES,
  sinceTs: SINCE_TS,
  position: kind('the position of a transaction', (value) => {
    return typeof value === 'string' && parseFeedPosition(value) !== undefined
  }),
  snapshot: BOOLEAN,
  consumer: TEXT,
  keysOnly: BOOLEAN,
  oldValues: BOOLEAN,
  as: AS,
  signal: SIGNAL,
  heartbeatMs: wholeUpTo(HEARTBEAT_MS_MIN, HEARTBEAT_MS_MAX),
  onResolved: FUNCTION,
  onError: FUNCTION,
}

export const changesOptions = optionsOf<ChangesOptions>('changes', KINDS)

export function selectionOf({ prefix, prefixes = [], keys = [], start, end }: SelectionOptions): Selection {
  const all = prefix === undefined ? prefixes : [prefix, ...prefixes]
  if (all.length === 0 && keys.length === 0) return keyRangeOf({ start, end })
  if (start !== undefined || end !== undefined)
    throw new TypeError('give prefixes and keys, or start and end, not both')
  if (all.length + keys.length > FEED_RANGES_MAX)
    throw new TypeError(`give no more than ${FEED_RANGES_MAX} prefixes and keys`)
  const given = all.map((one) => toBytes(one, 'a prefix'))
  return given.some(({ length }) => length === 0) ? {} : { prefixes: given, keys: toKeys(keys) }
}

export function originOf(options: ChangesOptions): FeedPosition | 'snapshot' | 'consumer' | 'now' {
  const { sinceTs, position, snapshot, consumer, prefix, prefixes, keys, start, end } = options
  if (sinceTs !== undefined && position !== undefined) throw new TypeError('give sinceTs or position, not both')
  if (sinceTs !== undefined && snapshot) throw new TypeError('give sinceTs or snapshot, not both')
  const isSelected = [prefix, prefixes, keys, start, end].some((one) => one !== undefined)
  if (consumer !== undefined && isSelected) throw new TypeError('the keys are those of the consumer: give no others')
  if (sinceTs !== undefined) return { ts: sinceTs }
  const given = position && parseFeedPosition(position)
  if (given) return given
  if (snapshot) return 'snapshot'
  return consumer === undefined ? 'now' : 'consumer'
}
