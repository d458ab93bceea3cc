import { KvError } from '../../../errors/kv-error.js'
import type { FoundLoss } from '../format/format-row.js'
import { UnusableTable } from '../layout/unusable-table.js'
import { KeptCommits } from './kept-commits.js'
import type { PostgresAddress } from './postgres-address.js'
import { kindOf } from './postgres-failures.js'
import { ask, loadPool, type PgClient, type PgPool, type Statement, type TextRow } from './postgres-package.js'

/** How long a statement may take. The client waits a little longer, for an answer that says so. */
const STATEMENT_MS = 5000
const GRACE_MS = 1000
/** A server that stops in the middle of a change keeps its rows locked for as long. */
const IDLE_IN_TRANSACTION_MS = 3000
const CONNECT_MS = 5000
const IDLE_MS = 60_000

/**
 * Each statement is a transaction with one snapshot: whatever has to wait for the commit of another one fails, and is repeated on
 * a new snapshot. Plans go by the primary key, whatever the statistics say of a table that has just grown.
 */
const SETTINGS = `
set default_transaction_isolation = 'repeatable read';
set statement_timeout = ${STATEMENT_MS};
set idle_in_transaction_session_timeout = ${IDLE_IN_TRANSACTION_MS};
set bytea_output = 'hex';
select set_config(name, 'off', false) from pg_settings
  where name in ('jit', 'enable_seqscan', 'enable_hashjoin', 'enable_mergejoin', 'enable_bitmapscan');
select set_config(name, 'force_generic_plan', false) from pg_settings where name = 'plan_cache_mode';
-- As it is now, also when the configuration is read again: what a commit promises is looked at once per connection.
select set_config('synchronous_commit', current_setting('synchronous_commit'), false)`

const PROMISES = `
select current_setting('fsync', true), current_setting('synchronous_commit', true), pg_is_in_recovery(),
  current_setting('transaction_read_only', true), current_setting('full_page_writes', true)`

export interface SessionsOptions {
  /** At once. */
  readonly sessionsMax: number
  /** Called with one line about a setting that may lose data in a crash of the machine. */
  readonly onWarning?: ((message: string) => void) | undefined
  /** Called once, when PostgreSQL lacks what these sessions have committed, or may lack it. Nothing is asked any more. */
  readonly onLoss?: ((loss: FoundLoss) => void) | undefined
}

/** Connections to one database, each with PerKV's own settings, and each checked for what a commit promises there. */
export class Sessions {
  readonly #pool: PgPool
  readonly #prepared: WeakSet<PgClient>
  readonly #kept: KeptCommits
  #isClosed = false

  private constructor(pool: PgPool, prepared: WeakSet<PgClient>, kept: KeptCommits) {
    this.#pool = pool
    this.#prepared = prepared
    this.#kept = kept
    pool.on('error', () => {}) // Of a connection that nobody uses: the next one is made anew.
  }

  /** Connects when first asked. @throws PostgresMissing */
  static async open(
    { connection, place }: PostgresAddress,
    { sessionsMax, onWarning = () => {}, onLoss = () => {} }: SessionsOptions,
  ): Promise<Sessions> {
    const Pool = await loadPool()
    const prepared = new WeakSet<PgClient>()
    const kept = new KeptCommits(sessionsMax, onLoss, (message) => onWarning(`${place}: ${message}`))
    let warned = ''
    const pool = new Pool({
      connectionString: connection,
      max: sessionsMax,
      connectionTimeoutMillis: CONNECT_MS,
      idleTimeoutMillis: IDLE_MS,
      query_timeout: STATEMENT_MS + GRACE_MS,
      keepAlive: true,
      pipeline: true,
      application_name: 'perkv',
      async onConnect(client) {
        client.on('error', () => {}) // Whoever has asked something is told as well.
        await client.query({ text: SETTINGS })
        const warning = requireSafe(place, (await ask(client, { text: PROMISES }))[0] ?? [])
        if (warning !== undefined && warning !== warned) onWarning(warning)
        warned = warning ?? ''
        await kept.look(client)
        prepared.add(client)
      },
    })
    return new Sessions(pool, prepared, kept)
  }

  /** @throws UnusableTable where a commit would promise too little; KvError once it is closed; errors of `pg`. */
  async with<T>(body: (client: PgClient) => Promise<T>): Promise<T> {
    if (this.#isClosed) throw new KvError('storage_unavailable', 'PostgreSQL: the table is closed', {})
    this.#requireNoLoss() // Before the database, which may just have failed over, is asked for a connection.
    const client = await this.#pool.connect()
    let isBroken = true
    try {
      // An older client of PostgreSQL leaves a new connection as it is, and says nothing.
      if (!this.#prepared.has(client))
        throw new UnusableTable('the installed pg is too old: npm install --save-prod pg@8.23')
      this.#requireKept(client)
      const result = await body(client)
      this.#requireKept(client)
      isBroken = false
      return result
    } catch (error) {
      isBroken = kindOf(error) !== 'conflict'
      throw error
    } finally {
      client.release(isBroken)
    }
  }

  #requireKept(client: PgClient): void {
    this.#requireNoLoss()
    if (this.#kept.isPast(client)) throw new Error('PostgreSQL runs anew: its former answers do not count')
  }

  #requireNoLoss(): void {
    if (this.#kept.loss !== undefined) throw new UnusableTable(this.#kept.loss)
  }

  /** Whether changes of a connection tell what `noteCommit` needs. */
  isWitnessed(client: PgClient): boolean {
    return this.#kept.isTold(client)
  }

  /**
   * Call with the answer to a change that has committed, before anybody hears of it.
   * @throws Error: the outcome is unknown, since PostgreSQL runs anew.
   */
  noteCommit(client: PgClient, [row]: readonly TextRow[]): void {
    if (this.#kept.loss !== undefined || this.#kept.isPast(client)) throw new Error('PostgreSQL runs anew')
    if (row?.[1]) this.#kept.note(row[1])
  }

  ask(statement: Statement): Promise<readonly TextRow[]> {
    return this.with((client) => ask(client, statement))
  }

  async close(): Promise<void> {
    if (this.#isClosed) return
    this.#isClosed = true
    await this.#pool.end()
  }
}

/** @returns a warning, or undefined. @throws UnusableTable */
function requireSafe(place: string, [fsync, commit, inRecovery, readOnly, pageWrites]: TextRow): string | undefined {
  const refuse = (why: string): never => {
    throw new UnusableTable(`${place}: ${why}`)
  }
  if (inRecovery === 't') refuse('this is a standby, which takes no writes: name the primary')
  if (readOnly === 'on') refuse('the session is read-only (default_transaction_read_only)')
  if (fsync === 'off') refuse('fsync is off: a crash of the machine would lose commits, or all data')
  if (commit === 'off') refuse('synchronous_commit is off: a crash would lose commits that were answered')
  return pageWrites === 'off'
    ? `${place}: full_page_writes is off: a crash of the machine may damage the data, unless the file system prevents torn pages`
    : undefined
}
