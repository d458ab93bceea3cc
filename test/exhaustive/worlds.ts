import type { Kind, TxnPlan, WorldPlan } from './model.js'

export interface World {
  readonly plan: WorldPlan
  /** Runs before a release only: `npm run test:long`. */
  readonly isLong?: boolean
  /** Defects in the list of the simulation that must show here, as patterns of their names. */
  readonly mutants?: readonly string[]
}

const KINDS: readonly Kind[] = ['two_pc', 'async', 'one_pc']
const ON_BOTH: TxnPlan = { kinds: KINDS, keys: [0, 1] }
const TWO: WorldPlan = { keys: 2, txns: [ON_BOTH, ON_BOTH], isLinearizable: false, hasReader: true }

export const WORLDS: Readonly<Record<string, World>> = {
  /** Small enough for every run of the tests. */
  everyday: { plan: { ...TWO, hasReader: false } },
  two: {
    plan: TWO,
    mutants: [
      'prewrite sees no newer version',
      'prewrite passes its own Rollback record',
      'a calculated commit_ts is not above reads',
      'commit passes min_commit_ts',
      'commit without its lock says done',
      'rollback of a missing lock leaves no record',
      'rollback of a lock leaves its value',
      'check_txn_status ends async commit by its primary',
      'check_secondary_locks leaves no record',
      'a read of the latest passes async commit',
      'a calculated commit_ts is not observed',
    ],
  },
  crossed: { plan: { ...TWO, txns: [ON_BOTH, { ...ON_BOTH, keys: [1, 0] }] }, isLong: true },
  linearizable: { plan: { ...TWO, isLinearizable: true }, isLong: true },
}
