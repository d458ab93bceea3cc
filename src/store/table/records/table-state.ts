import { isNewer, type OracleRecord } from '../../../oracle/oracle-row.js'

/** The rows by which a server knows its table. undefined: there is no such row. */
export interface IdentifyingRows {
  readonly secret: Buffer | undefined
  readonly oracle: OracleRecord | undefined
}

/**
 * `faulty`: it may become well again. `another`: what the server knows is not of this table, so it must not go on. `set back`:
 * neither may any other server, since commits that were answered are gone.
 */
export type TableState =
  | { readonly is: 'same' }
  | { readonly is: 'faulty'; readonly why: string }
  | { readonly is: 'another' | 'set back'; readonly why: string }

const SAME: TableState = { is: 'same' }

/**
 * Whether a table is the one that a server has joined.
 * @param secret as the server found it when it joined.
 * @param seen the newest record of the oracle that the server has seen; undefined: none.
 * @param found by a read that began after `seen` was read.
 */
export function tableState(secret: Buffer, seen: OracleRecord | undefined, found: IdentifyingRows): TableState {
  if (found.secret !== undefined && !found.secret.equals(secret))
    return { is: 'another', why: 'the table was made anew: other servers have another secret' }
  if (found.oracle !== undefined && seen !== undefined && isNewer(seen, found.oracle))
    return { is: 'set back', why: `the table was set back, to epoch ${found.oracle.epoch} of the oracle or earlier` }
  if (found.oracle === undefined && found.secret === undefined)
    return { is: 'another', why: 'the table was made anew, or emptied: the rows of its servers are gone' }
  if (found.secret === undefined)
    return { is: 'faulty', why: 'the secret of the servers is gone from the table: no server can join' }
  if (found.oracle === undefined && seen !== undefined)
    return { is: 'faulty', why: "the oracle's row is gone from the table: no timestamps" }
  return SAME
}
