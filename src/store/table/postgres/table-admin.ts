import { Backoff } from '../../../coordinator/backoff.js'
import { TABLE_WAIT_MS_MAX } from '../../../limits.js'
import { UnusableTable } from '../layout/unusable-table.js'
import type { PostgresAddress } from './postgres-address.js'
import { kindOf, printFailure } from './postgres-failures.js'
import { Sessions } from './sessions.js'

const COLUMNS = 'key bytea, family "char", qualifier bytea, value bytea'
const PRIMARY_KEY = 'PRIMARY KEY (key, family, qualifier)'
/** Codes of a table that another session has made at the same moment. */
const EXISTS = ['42P07', '42710', '23505']

type OnWarning = (message: string) => void

/**
 * Makes the table, if it is missing. Changes nothing that exists.
 * @returns whether it was made.
 * @throws UnusableTable also for a table of that name that is not PerKV's.
 */
export function makeTable(address: PostgresAddress, onWarning?: OnWarning): Promise<boolean> {
  return withSessions(address, onWarning, async (sessions) => {
    const isMade = !(await isThere(sessions, address)) && (await isCreated(sessions, address))
    await requireSound(sessions, address)
    return isMade
  })
}

/** @throws UnusableTable where the table can't be served from, or the database does not answer. */
export function requireSoundTable(address: PostgresAddress, onWarning?: OnWarning): Promise<void> {
  return withSessions(address, onWarning, (sessions) => requireSound(sessions, address))
}

async function isThere(sessions: Sessions, { table }: PostgresAddress): Promise<boolean> {
  const [row] = await sessions.ask({ text: 'select to_regclass($1)', values: [table] })
  return row !== undefined && row[0] !== null
}

/** @returns false where another session was faster. */
async function isCreated(sessions: Sessions, { table }: PostgresAddress): Promise<boolean> {
  // The room in each page is for values that are replaced with every commit, which then touch no index.
  const create = `create table ${table} (${COLUMNS.replaceAll(',', ' not null,')} not null, ${PRIMARY_KEY}) with (fillfactor = 80)`
  try {
    await sessions.ask({ text: create })
  } catch (error) {
    if (!EXISTS.includes((error as { readonly code?: string }).code ?? '')) throw error
    return false
  }
  // Most long values are compressed already: PostgreSQL need not try.
  await sessions.ask({ text: `alter table ${table} alter column value set storage external` })
  return true
}

async function requireSound(sessions: Sessions, { table, place }: PostgresAddress): Promise<void> {
  const refuse = (why: string): never => {
    throw new UnusableTable(`${place}: ${why}`)
  }
  const text = `select c.relkind, c.relpersistence,
      (select string_agg(attname || ' ' || format_type(atttypid, null), ', ' order by attnum) from pg_attribute
        where attrelid = c.oid and attnum > 0 and not attisdropped),
      (select pg_get_constraintdef(oid) from pg_constraint where conrelid = c.oid and contype = 'p'),
      (select bool_and(has_table_privilege(c.oid, p)) from unnest(array['select', 'insert', 'update', 'delete']) as p)
    from pg_class as c where c.oid = to_regclass($1)`
  const [found] = await sessions.ask({ text, values: [table] })
  if (found === undefined) return refuse('there is no such table: perkv store init makes it')
  const [kind, persistence, columns, key, mayWrite] = found
  if ((kind !== 'r' && kind !== 'p') || columns !== COLUMNS || key !== PRIMARY_KEY)
    refuse(`${table} is not a table of PerKV: it has (${columns}${key === null ? '' : `, ${key}`})`)
  if (persistence !== 'p') refuse(`${table} is unlogged or temporary: a crash would empty it`)
  if (mayWrite !== 't') refuse(`the user may not select, insert, update and delete in ${table}`)
}

/** Repeats what fails because the database does not answer, for `TABLE_WAIT_MS_MAX`. */
async function withSessions<T>(
  address: PostgresAddress,
  onWarning: OnWarning | undefined,
  body: (sessions: Sessions) => Promise<T>,
): Promise<T> {
  const sessions = await Sessions.open(address, { sessionsMax: 1, onWarning })
  const endsAt = performance.now() + TABLE_WAIT_MS_MAX
  const backoff = new Backoff(10, 500)
  try {
    for (;;)
      try {
        return await body(sessions)
      } catch (error) {
        if (error instanceof UnusableTable) throw error
        if (kindOf(error) === 'lasting' || performance.now() >= endsAt)
          throw new UnusableTable(`${address.place}: ${printFailure(error)}`, { cause: error })
        await backoff.wait()
      }
  } finally {
    await sessions.close()
  }
}
