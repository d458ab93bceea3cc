import type { PrewriteMutation } from '../percolator/api.js'
import type { CommitEffects } from '../percolator/commit-effects.js'
import type { Timestamp } from '../timestamp.js'
import type { Resolver } from './lock-resolver.js'

export interface EffectRowsRequest {
  readonly commitEffects: CommitEffects
  readonly startTs: Timestamp
  readonly mutations: readonly PrewriteMutation[]
  readonly resolver: Resolver
  readonly lockWaitMs: number
  readonly signal?: AbortSignal | undefined
  readonly mayRepeat?: boolean
}

/** The commit effects of one transaction as rows of it, for a store that cannot commit in one phase. */
export interface EffectRows {
  /** commit_ts of an earlier, committed copy of the request. Set only with `mayRepeat`. */
  readonly committedAt: Timestamp | undefined
  readonly mutations: readonly PrewriteMutation[]
  readonly markDepth: number
  /** Counts the conflict. @returns the caller's error: a conflict on an acknowledgement's row becomes its refusal. */
  refusal(error: unknown): unknown
  committed(): Promise<void>
}

/**
 * Decides the acknowledgements and notifications among commit effects.
 * @throws KvError `write_conflict` (`acknowledged`, `superseded`), `key_locked`, `ts_below_safe_point`, `not_found`,
 *   `invalid_argument`
 */
export type EffectsAsRows = (request: EffectRowsRequest) => Promise<EffectRows>

export function needsRows({ acks = [], notify = [] }: CommitEffects): boolean {
  return acks.length > 0 || notify.some(({ keys }) => keys.length > 0)
}
