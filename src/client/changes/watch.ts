import type { KeyState } from '../../changes/rules/changes-api.js'
import type { Timestamp } from '../../timestamp.js'
import { AS, type As, type Read, readValue } from '../bytes.js'
import { type Expiring, expiringOf } from '../expiry.js'
import { type Kinds, kind, optionsOf, SIGNAL } from '../options.js'
import type { ChangesBackend } from './changes.js'
import { reconnecting } from './reconnecting.js'

export interface WatchOptions<A extends As = As> {
  /** A state with this `commitTs` is known to the caller and not delivered. */
  readonly seenTs?: Timestamp | undefined
  /** The type in which values are returned. Default `text`. */
  readonly as?: A | undefined
  /** Ends the loop. */
  readonly signal?: AbortSignal | undefined
  /**
   * Called when a server cannot be reached, or cuts each stream (`StreamCut`), before the loop connects again. An error that it
   * throws ends the loop.
   */
  readonly onError?: ((error: unknown) => void) | undefined
}

export interface Watched<A extends As = 'text'> extends Expiring {
  /** undefined when the key is absent. */
  readonly value: Read<A> | undefined
  /** commit_ts of the value or, when the key is absent, of its deletion or expiry; 0 when none is known. */
  readonly commitTs: Timestamp
}

export const watchOptions = optionsOf<WatchOptions>('watch', {
  seenTs: kind('a timestamp, or 0', (value) => Number.isSafeInteger(value) && (value as number) >= 0),
  as: AS,
  signal: SIGNAL,
  onError: kind('a function', (value) => typeof value === 'function'),
} satisfies Kinds<WatchOptions>)

export async function* watchOf<A extends As>(
  backend: ChangesBackend,
  key: Uint8Array,
  { as = 'text' as A, seenTs, onError }: WatchOptions<A>,
  signal: AbortSignal,
): AsyncGenerator<Watched<A>, void, undefined> {
  let seen: KeyState | undefined
  const open = () => backend.changes.watch({ key, seenTs: seen?.commitTs ?? seenTs, signal })
  for await (const state of reconnecting(backend, open, { signal, onError })) {
    if (seen === undefined ? state.commitTs === seenTs : isSame(state, seen)) continue // A new connection delivers it again.
    seen = state
    const { commitTs } = state
    if (state.found) yield { value: readValue(state.value, as, key), commitTs, ...expiringOf(state.expireTs) }
    else yield { value: undefined, commitTs }
    if (signal.aborted) return
  }
}

function isSame(one: KeyState, other: KeyState): boolean {
  return one.found === other.found && (one.commitTs === other.commitTs || !one.found)
}
