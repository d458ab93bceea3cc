import type { OracleMeters } from '../meters/oracle-meters.js'

export const ORACLE_ROLES = ['leader', 'follower', 'candidate'] as const

export interface OracleRole {
  /** A candidate knows of no live leader. */
  readonly role: (typeof ORACLE_ROLES)[number]
  /** URL; undefined also where a process is alone with its store. */
  readonly leader: string | undefined
  /** 0 where a process is alone with its store. */
  readonly epoch: number
}

export interface OracleState {
  readonly meters: OracleMeters
  readonly role: OracleRole
  readonly aheadMs: number
  readonly clockAheadMs: number
  /** By how much this server's system clock is ahead of the timestamps' clock; below 0: behind. */
  readonly clockOffsetMs: number
  /** Why timestamps are wanted and not had; undefined when they are had, or nobody has waited for long. */
  readonly late: string | undefined
}
