import { UnusableTable } from '../layout/unusable-table.js'

export interface PostgresAddress {
  /** For the client, without the parameter `table`. It may have a password: never print it. */
  readonly connection: string
  /** As SQL has it: quoted, with its schema if the address names one. */
  readonly table: string
  /** For people, without a password. */
  readonly place: string
}

const POSTGRES_FORM = 'postgres://USER@HOST/DATABASE[?table=NAME]'
const SCHEME = /^postgres(?:ql)?:\/\//
const DEFAULT_TABLE = 'perkv'
const NAME = /^[A-Za-z_][A-Za-z0-9_]{0,62}$/
/** Parameters that say where the data is, and how the way there is encrypted. Others may be secrets. */
const PRINTED = ['host', 'port', 'user', 'dbname', 'sslmode', 'sslrootcert', 'sslcert', 'sslkey', 'sslnegotiation']

export function isPostgresAddress(text: string): boolean {
  return SCHEME.test(text)
}

/** @throws UnusableTable, whose message has no password. */
export function parsePostgresAddress(text: string): PostgresAddress {
  const refuse = (why: string): never => {
    throw new UnusableTable(`the address of PostgreSQL is wrong: ${why}; expected ${POSTGRES_FORM}`)
  }
  if (!isPostgresAddress(text)) return refuse('it does not begin with postgres://')
  if (!URL.canParse(text)) return refuse('it is no URL (a special character of a password is written as %XX)')
  const url = new URL(text)
  // A password with a bare / or # in it would be taken for a part of the path, and printed.
  if (url.hash !== '' || url.pathname.includes('@'))
    return refuse('it has a # or an @ too many (a special character of a password is written as %XX)')
  const [table = DEFAULT_TABLE, ...more] = url.searchParams.getAll('table')
  if (more.length > 0) return refuse('table is there more than once')
  const names = table.split('.')
  if (names.length > 2 || !names.every((name) => NAME.test(name)))
    return refuse(`${JSON.stringify(table)} is no name of a table, or of a schema and a table`)
  const place = new URL(url)
  place.password = ''
  for (const name of [...place.searchParams.keys()]) if (!PRINTED.includes(name)) place.searchParams.delete(name)
  if (table !== DEFAULT_TABLE) place.searchParams.set('table', table)
  url.searchParams.delete('table')
  return { connection: url.href, table: names.map((name) => `"${name}"`).join('.'), place: place.href }
}
