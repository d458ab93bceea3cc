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
 * Decides commit effects of some kinds.
 * @throws KvError `write_conflict` (`acknowledged`, `superseded`), `key_locked`, `ts_below_safe_point`, `not_found`,
 *   `invalid_argument`
 */
export type EffectsAsRows = (request: EffectRowsRequest) => Promise<EffectRows>

export function needsRows({ acks = [], notify = [], positions = [] }: CommitEffects): boolean {
  return acks.length + positions.length > 0 || notify.some(({ keys }) => keys.length > 0)
}

/** @returns undefined where the store takes all commit effects with a prewrite. */
export function joinedEffects(parts: readonly (EffectsAsRows | undefined)[]): EffectsAsRows | undefined {
  const some = parts.filter((part) => part !== undefined)
  if (some.length === 0) return undefined
  return async (request) => {
    const rows: EffectRows[] = []
    for (const part of some) rows.push(await part(request))
    return {
      committedAt: rows.find(({ committedAt }) => committedAt !== undefined)?.committedAt,
      mutations: rows.flatMap(({ mutations }) => mutations),
      markDepth: Math.max(...rows.map(({ markDepth }) => markDepth)),
      refusal: (error) => rows.reduce((refused, each) => each.refusal(refused), error),
      committed: async () => void (await Promise.all(rows.map((each) => each.committed()))),
    }
  }
}
