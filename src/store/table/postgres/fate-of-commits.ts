import { isPostgres } from './postgres.js'
import type { TextRow } from './postgres-package.js'

/** A transaction that was answered. */
export interface Witness {
  readonly xid: string
  /** A place in the log between the transaction's first record and its commit. */
  readonly lsn: bigint
}

/** A run of PostgreSQL, as a connection finds it. */
export interface Run {
  readonly name: string
  readonly timeline: number
  /** Version of PostgreSQL. */
  readonly major: number
  /** Where the log of the run before ended, as far as this one found it; undefined: it did not have to recover. */
  readonly recoveredTo: bigint | undefined
  /** It has followed another PostgreSQL. Else it has recovered from a crash, of its own timeline. */
  readonly hasFollowed: boolean
  readonly at: bigint
}

/**
 * What became of the transactions that an earlier run has answered.
 * - `recorded`: the log has a record of each, so `txid_status` tells of the same transactions.
 * - `in doubt`: this run does not show where it has left the log of the earlier one, and never will.
 */
export type FateOfCommits =
  | { readonly is: 'kept' }
  | { readonly is: 'recorded'; readonly orLost: string }
  | { readonly is: 'lost' | 'in doubt'; readonly why: string }

/** Asks for what `runOf` reads. */
export const RUN = `select extract(epoch from pg_postmaster_start_time())::text, pg_walfile_name(pg_current_wal_insert_lsn()),
  pg_last_wal_replay_lsn()::text, pg_current_wal_insert_lsn()::text, pg_last_wal_receive_lsn()::text, version()`

/** @returns undefined for what speaks PostgreSQL's protocol and is none. */
export function runOf([started, file, recoveredTo, at, receivedTo, version]: TextRow): Run | undefined {
  if (!isPostgres(version ?? '')) return undefined
  // The name of a file of the log begins with its timeline.
  const timeline = Number.parseInt((file ?? '').slice(0, 8), 16)
  return {
    name: `${started} ${timeline} ${recoveredTo ?? ''}`,
    timeline,
    major: Number(/\d+/.exec(version ?? '')?.[0]),
    recoveredTo: recoveredTo == null ? undefined : lsnOf(recoveredTo),
    hasFollowed: receivedTo != null,
    at: lsnOf(at ?? '0/0'),
  }
}

/** @param witnesses the last transactions that `before` has answered. */
export function fateOfCommits(before: Run, run: Run, witnesses: readonly Witness[]): FateOfCommits {
  if (witnesses.length === 0 || before.name === run.name) return { is: 'kept' }
  // pg_upgrade begins with the first timeline again, and goes on with the places and the transactions.
  const isUpgraded = run.timeline < before.timeline && run.major > before.major
  const isSame = run.timeline === before.timeline || isUpgraded
  const way = isSame ? 'an older copy of the data' : `timeline ${before.timeline} to ${run.timeline}`
  // A later timeline has left the earlier one there, or before.
  const end = run.recoveredTo ?? run.at
  const why = `${way}: commits that were answered are lost`
  if ((isSame || run.timeline > before.timeline) && witnesses.some(({ lsn }) => lsn > end)) return { is: 'lost', why }
  // Only the last of several failovers, and none before a restart or a crash, shows where it has left the log.
  const isShown = run.hasFollowed && run.recoveredTo !== undefined && run.timeline === before.timeline + 1
  if (isSame || isShown) return { is: 'recorded', orLost: why }
  return { is: 'in doubt', why: `${way}: nothing shows that the last commits were kept` }
}

/** As PostgreSQL prints it: two halves in hexadecimal digits. */
export function lsnOf(text: string): bigint {
  const [high = '0', low = '0'] = text.split('/')
  return (BigInt(`0x${high}`) << 32n) | BigInt(`0x${low}`)
}
