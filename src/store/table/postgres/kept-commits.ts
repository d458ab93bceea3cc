import { isPostgres } from './postgres.js'
import { kindOf } from './postgres-failures.js'
import { ask, type PgClient, type TextRow } from './postgres-package.js'

/** A transaction that was answered. */
interface Witness {
  readonly xid: string
  /** A place in the log between the transaction's first record and its commit. */
  readonly lsn: bigint
}

/** A run of PostgreSQL, as a connection finds it. */
interface Run {
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

const RUN = `select extract(epoch from pg_postmaster_start_time())::text, pg_walfile_name(pg_current_wal_insert_lsn()),
  pg_last_wal_replay_lsn()::text, pg_current_wal_insert_lsn()::text, pg_last_wal_receive_lsn()::text, version()`
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
  readonly #onLoss: (why: string) => void
  readonly #onWarning: (message: string) => void
  #isWarned = false

  constructor(witnessesMax: number, onLoss: (why: string) => void, onWarning: (message: string) => void) {
    this.#witnessesMax = witnessesMax
    this.#onLoss = onLoss
    this.#onWarning = onWarning
  }

  /** What was lost, in words; once set, it stays. */
  get loss(): string | undefined {
    return this.#loss
  }

  /** Looks at a new connection. Sets `loss`, and calls `onLoss` once. @throws errors of `pg` */
  async look(client: PgClient): Promise<void> {
    const run = await this.#runOf(client)
    if (run === undefined) return
    this.#runs.set(client, run)
    const before = this.#run
    if (before !== undefined && before.name !== run.name) {
      const loss = await this.#lossBetween(before, run, client, this.#witnesses)
      if (loss !== undefined && this.#loss === undefined) {
        this.#loss = loss
        this.#onLoss(loss)
      }
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
      if (isPostgres(row[5] ?? '')) return runOf(row)
    } catch (error) {
      if (!CANNOT_TELL.includes((error as { readonly code?: unknown }).code)) throw error
    }
    if (!this.#isWarned) this.#onWarning('this database does not tell whether a failover has lost commits')
    this.#isWarned = true
    return undefined
  }

  /** @returns in words, undefined: nothing is lost. @throws errors of `pg` */
  async #lossBetween(
    before: Run,
    run: Run,
    client: PgClient,
    witnesses: readonly Witness[],
  ): Promise<string | undefined> {
    if (witnesses.length === 0) return undefined
    // pg_upgrade begins with the first timeline again, and goes on with the places and the transactions.
    const isUpgraded = run.timeline < before.timeline && run.major > before.major
    const isSame = run.timeline === before.timeline || isUpgraded
    const way = isSame ? 'an older copy of the data' : `timeline ${before.timeline} to ${run.timeline}`
    const end = isSame ? (run.recoveredTo ?? run.at) : run.hasFollowed ? run.recoveredTo : undefined
    // Only the last of several failovers, and none before a restart or a crash, shows where it has left the log.
    if (end === undefined || !(isSame || run.timeline === before.timeline + 1))
      return `${way}: nothing shows that the last commits were kept`
    const loss = `${way}: commits that were answered are lost`
    if (witnesses.some(({ lsn }) => lsn > end)) return loss
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

function runOf([started, file, recoveredTo, at, receivedTo, version]: TextRow): Run {
  // The name of a file of the log begins with its timeline.
  const timeline = Number.parseInt((file ?? '').slice(0, 8), 16)
  const name = `${started} ${timeline} ${recoveredTo ?? ''}`
  return {
    ...{
      name,
      timeline,
      major: Number(/\d+/.exec(version ?? '')?.[0]),
      hasFollowed: receivedTo != null,
      at: lsnOf(at ?? '0/0'),
    },
    recoveredTo: recoveredTo == null ? undefined : lsnOf(recoveredTo),
  }
}

/** As PostgreSQL prints it: two halves in hexadecimal digits. */
function lsnOf(text: string): bigint {
  const [high = '0', low = '0'] = text.split('/')
  return (BigInt(`0x${high}`) << 32n) | BigInt(`0x${low}`)
}
