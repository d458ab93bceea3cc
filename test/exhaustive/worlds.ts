import type { Kind, TxnPlan, WorldPlan } from './model.js'
import type { TableWorld } from './table-servers.js'
import { acknowledged, fenced, repeated, transferred } from './table-worlds.js'

interface World {
  /** Each is searched by itself. Default: none. */
  readonly plans?: readonly WorldPlan[]
  /** Whole servers on a table: see `searchTable`. With one deviation, and before a release with two where it is not long by itself. */
  readonly table?: TableWorld
  /** Runs before a release only: `npm run test:long`. */
  readonly isLong?: boolean
  /** Defects in the list of the simulation that must show here. */
  readonly mutants?: readonly string[]
}

const KINDS: readonly Kind[] = ['two_pc', 'async', 'one_pc']
const ON_BOTH: TxnPlan = { kinds: KINDS, keys: [0, 1] }
const ON_ONE: TxnPlan = { kinds: KINDS, keys: [0] }
const LOCKING: TxnPlan = { ...ON_BOTH, isPessimistic: true }
const FORCING: TxnPlan = { ...LOCKING, isForced: true }
const TWO: WorldPlan = { keys: 2, txns: [ON_BOTH, ON_BOTH], isLinearizable: false, hasReader: true }

/** Reads a key and writes the other. Reads are not validated in an async commit: see the committer. */
function skewed(key: number): TxnPlan {
  return { kinds: ['two_pc', 'one_pc'], keys: [key], reads: [1 - key] }
}

/** The transactions in any order: the first of a plan is the one that begins first. */
function inAnyOrder(plan: Omit<WorldPlan, 'txns'>, one: TxnPlan, other: TxnPlan): readonly WorldPlan[] {
  return [
    { ...plan, txns: [one, other] },
    { ...plan, txns: [other, one] },
  ]
}

export const WORLDS: Readonly<Record<string, World>> = {
  /** Small enough for every run of the tests. */
  everyday: { plans: [{ ...TWO, txns: [ON_BOTH, { ...ON_BOTH, kinds: ['two_pc', 'one_pc'] }], hasReader: false }] },
  two: {
    plans: [TWO],
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
      'a heart beat raises min_commit_ts under async commit',
      'a cleanup passes a commit',
      'a cleanup of a missing lock leaves no record',
    ],
  },
  bounded: {
    plans: [
      {
        ...TWO,
        txns: [
          { ...ON_BOTH, kinds: ['async', 'one_pc'], commitsWithin: 1 },
          { ...ON_ONE, kinds: ['one_pc'] },
        ],
      },
    ],
    mutants: ['a calculated commit_ts passes max_commit_ts'],
  },
  forced: {
    plans: inAnyOrder({ ...TWO, hasReader: false }, FORCING, { ...ON_BOTH, kinds: ['one_pc'] }),
    mutants: ['a repeat of a forced lock reads below it'],
  },
  pessimistic: {
    plans: inAnyOrder({ ...TWO, hasReader: false }, LOCKING, ON_BOTH),
    mutants: [
      'a lost pessimistic lock is always made good',
      'a lock granted anew at a newer version counts',
      'a locking read sees the snapshot',
    ],
  },
  serializable: {
    plans: [
      { ...TWO, txns: [skewed(0), skewed(1)], hasReader: false },
      ...inAnyOrder({ ...TWO, hasReader: false }, skewed(0), ON_BOTH),
    ],
    mutants: ['validation passes locks', 'validation passes newer versions'],
  },
  collected: {
    plans: inAnyOrder({ ...TWO, isCollected: true }, ON_ONE, { ...ON_BOTH, kinds: ['one_pc'], isDelete: true }),
    mutants: ['gc removes the newest Put', 'gc leaves values', 'prewrites below the safe point are let in'],
  },
  transferred: {
    table: transferred(false),
    mutants: [
      'rows are written without a condition',
      'commit_ts is taken before the locks stand',
      'a lost answer says that it is done',
    ],
  },
  repeated: {
    table: repeated(false),
    mutants: ['a stored outcome is not told', 'an outcome is written behind its commit'],
  },
  fenced: {
    table: fenced(false),
    mutants: ['no lease is looked at before a commit', 'a lease is granted before its end'],
  },
  attached: {
    table: fenced(true),
    mutants: ['what commits attached keys marks nothing', 'a lease ends without its keys'],
  },
  acknowledged: {
    table: acknowledged,
    mutants: [
      'locks are not hinted at',
      'a run does not wait for locks',
      'a run says that it has seen what comes now',
      'a run forgets what it has not seen',
    ],
  },
  three: {
    plans: [
      {
        ...TWO,
        txns: [ON_BOTH, { ...ON_BOTH, kinds: ['one_pc'] }, { ...ON_ONE, kinds: ['one_pc', 'async'] }],
        hasReader: false,
      },
    ],
    isLong: true,
  },
  crossed: { plans: [{ ...TWO, txns: [ON_BOTH, { ...ON_BOTH, keys: [1, 0] }] }], isLong: true },
  linearizable: { plans: [{ ...TWO, isLinearizable: true }], isLong: true },
  kept: { table: repeated(true), isLong: true },
  cleared: { table: transferred(true), isLong: true },
  locking: { plans: [{ ...TWO, txns: [LOCKING, LOCKING], hasReader: false }], isLong: true },
}
