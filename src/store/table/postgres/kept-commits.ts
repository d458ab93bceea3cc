import type { FoundLoss } from '../format/format-row.js'
import { fateOfCommits, lsnOf, RUN, type Run, runOf, type Witness } from './fate-of-commits.js'
import { kindOf } from './postgres-failures.js'
import { ask, type PgClient } from './postgres-package.js'

/** No such function, not supported, not allowed. */
const CANNOT_TELL: readonly unknown[] = ['42883', '0A000', '42501']
/** An xid that has not been given out. */
const UNKNOWN_XID = '22023'

/** SQL of a witness, for a statement that has written something. It is read again by `KeptCommits.note`. */
export const WITNESS = "txid_current()::text || ' ' || pg_current_wal_insert_lsn()::text"

/**
 * Whether PostgreSQL still has what it has committed. A failover to a replica that lacked the end of the log, or an older copy of
 * the data, takes away the last commits, and of the log nothing but its end: so the last ones prove all earlier ones.
 *
 * Each new connection tells which run of PostgreSQL it has reached. In another run than before, all witnesses are looked up.
 * `recoveredTo` is where a promoted replica has left the old log.
 *
 * - Below a witness: its commit is lost.
 * - Not below it: the log has a record of the transaction. So its xid was not given out again, and `txid_status` tells whether
 *   the commit was there too.
 * - Unknown (`fateOfCommits`): in doubt. Another look at the same run would find the same, so there is none.
 *
 * Of transactions that were answered, as many are kept as there are connections: any older one was answered before one of these
 * began, so it stands before that in the log.
 */
export class KeptCommits {
  readonly #witnessesMax: number
  #witnesses: readonly Witness[] = []
  #run: Run | undefined
  readonly #runs = new WeakMap<PgClient, Run>()
  #loss: string | undefined
  readonly #onLoss: (loss: FoundLoss) => void
  readonly #onWarning: (message: string) => void
  #isWarned = false

  constructor(witnessesMax: number, onLoss: (loss: FoundLoss) => void, onWarning: (message: string) => void) {
    this.#witnessesMax = witnessesMax
    this.#onLoss = onLoss
    this.#onWarning = onWarning
  }

  /** What was lost, or may be, in words; once set, it stays. */
  get loss(): string | undefined {
    return this.#loss
  }

  /** Looks at a new connection. Sets `loss`, and calls `onLoss` once. @throws errors of `pg` */
  async look(client: PgClient): Promise<void> {
    const seen = this.#run
    const run = await this.#runOf(client)
    if (run === undefined) return
    const before = this.#run
    // An answer of the run before, which comes late.
    if (before !== seen && before?.name !== run.name) throw new Error('PostgreSQL runs anew')
    this.#runs.set(client, run)
    let loss: FoundLoss | undefined
    let lookedUp: readonly Witness[] | undefined
    // What the run before has answered meanwhile is looked up as well.
    while (before !== undefined && before.name !== run.name && this.#run === before) {
      if (loss !== undefined || lookedUp === this.#witnesses) break
      lookedUp = this.#witnesses
      loss = await this.#lossBetween(before, run, lookedUp, client)
    }
    if (loss !== undefined && this.#loss === undefined) {
      this.#loss = loss.why
      this.#onLoss(loss)
    }
    this.#run = run
  }

  /** Whether statements of this connection tell their witnesses. */
  isTold(client: PgClient): boolean {
    return this.#runs.has(client)
  }

  /** Whether a later connection has reached another run of PostgreSQL: what this one answers is not believed any more. */
  isPast(client: PgClient): boolean {
    return this.#runs.get(client)?.name !== (this.isTold(client) ? this.#run?.name : undefined)
  }

  /** @param text of `WITNESS`, of a transaction that has committed. */
  note(text: string): void {
    const [xid = '', lsn = ''] = text.split(' ')
    this.#witnesses = [...this.#witnesses, { xid, lsn: lsnOf(lsn) }].slice(-this.#witnessesMax)
  }

  /** @returns undefined where it does not tell. */
  async #runOf(client: PgClient): Promise<Run | undefined> {
    try {
      const [row = []] = await ask(client, { text: RUN })
      const run = runOf(row)
      if (run !== undefined) return run
    } catch (error) {
      if (!CANNOT_TELL.includes((error as { readonly code?: unknown }).code)) throw error
    }
    if (!this.#isWarned) this.#onWarning('this database does not tell whether a failover has lost commits')
    this.#isWarned = true
    return undefined
  }

  /** @returns undefined: nothing is lost. @throws errors of `pg` */
  async #lossBetween(
    before: Run,
    run: Run,
    witnesses: readonly Witness[],
    client: PgClient,
  ): Promise<FoundLoss | undefined> {
    const fate = fateOfCommits(before, run, witnesses)
    if (fate.is === 'kept') return undefined
    if (fate.is !== 'recorded') return { why: fate.why, isDoubt: fate.is === 'in doubt' }
    const loss = { why: fate.orLost, isDoubt: false }
    try {
      const text = 'select txid_status(xid) from unnest($1::bigint[]) as xid'
      const states = await ask(client, { text, values: [`{${witnesses.map(({ xid }) => xid).join()}}`] })
      // NULL: so old that it is forgotten.
      return states.every(([state]) => state === null || state === 'committed') ? undefined : loss
    } catch (error) {
      if (kindOf(error) === 'lasting' && (error as { readonly code?: unknown }).code === UNKNOWN_XID) return loss
      throw error
    }
  }
}
