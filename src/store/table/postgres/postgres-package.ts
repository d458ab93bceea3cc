import type { Writable } from 'node:stream'
import { UnusableTable } from '../layout/unusable-table.js'

/** An optional peer: few users need it. */
const PACKAGE: string = 'pg'
/** In a clone of this package, npm installs an optional peer only with `--save-prod`. */
const INSTALL = 'npm install --save-prod pg@8'

class PostgresMissing extends UnusableTable {
  override readonly name = 'PostgresMissing'

  constructor(options?: ErrorOptions) {
    super(`the client of PostgreSQL is not installed: ${INSTALL}`, options)
  }
}

/** A statement with a name is prepared once per connection. */
export interface Statement {
  readonly name?: string | undefined
  readonly text: string
  readonly values?: readonly (Buffer | string | number)[] | undefined
}

/** The texts of a row, as PostgreSQL prints them. */
export type TextRow = readonly (string | null)[]

export interface PgClient {
  on(event: 'error', listener: (error: Error) => void): this
  on(event: 'end', listener: () => void): this
  on(event: 'notification', listener: (message: { readonly payload?: string | undefined }) => void): this
  query(query: object): Promise<{ readonly rows: readonly TextRow[] }>
  readonly connection: { readonly stream: Pick<Writable, 'cork' | 'uncork'> }
  /** @param isBroken closes the connection. */
  release(isBroken?: boolean): void
}

export interface PgPool {
  connect(): Promise<PgClient>
  on(event: 'error', listener: (error: Error) => void): this
  end(): Promise<void>
}

interface PoolOptions {
  readonly connectionString: string
  readonly max: number
  readonly connectionTimeoutMillis: number
  readonly idleTimeoutMillis: number
  readonly query_timeout: number
  readonly keepAlive: true
  /** A statement does not wait for the answer to the one before. */
  readonly pipeline: true
  readonly application_name: string
  /** Prepares a new connection. */
  readonly onConnect: (client: PgClient) => Promise<void>
}

interface Package {
  readonly Pool: new (options: PoolOptions) => PgPool
}

/** @throws PostgresMissing */
export async function loadPool(): Promise<Package['Pool']> {
  try {
    const loaded = (await import(PACKAGE)) as Package & { readonly default?: Package }
    return (loaded.default ?? loaded).Pool
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    if (code === 'ERR_MODULE_NOT_FOUND' && message.includes(`'${PACKAGE}'`)) throw new PostgresMissing({ cause: error })
    throw error
  }
}

const AS_TEXT = { getTypeParser: () => (text: string) => text }

export async function ask(client: PgClient, { name, text, values }: Statement): Promise<readonly TextRow[]> {
  const { rows } = await client.query({ name, text, values, rowMode: 'array', types: AS_TEXT })
  return rows
}

/** What `send` asks goes out in one write. */
export function inOneWrite<T>({ connection: { stream } }: PgClient, send: () => T): T {
  stream.cork()
  try {
    return send()
  } finally {
    stream.uncork()
  }
}

const BYTEA = 17
const CHAR = 18
const NULL = -1

/** An array of byte strings in PostgreSQL's binary format, which needs no escapes. */
export function byteArray(items: readonly (Buffer | undefined)[]): Buffer {
  return binaryArray(BYTEA, items)
}

/** An array of the type `"char"`. */
export function charArray(items: readonly string[]): Buffer {
  return binaryArray(
    CHAR,
    items.map((item) => Buffer.from(item, 'latin1')),
  )
}

function binaryArray(type: number, items: readonly (Buffer | undefined)[]): Buffer {
  const hasNull = items.includes(undefined)
  const head = [items.length === 0 ? 0 : 1, hasNull ? 1 : 0, type, ...(items.length === 0 ? [] : [items.length, 1])]
  const out = Buffer.allocUnsafe(items.reduce((sum, item) => sum + 4 + (item?.length ?? 0), head.length * 4))
  let at = 0
  for (const field of head) at = out.writeInt32BE(field, at)
  for (const item of items) {
    at = out.writeInt32BE(item?.length ?? NULL, at)
    if (item !== undefined) at += item.copy(out, at)
  }
  return out
}

/** @param text as `bytea_output = hex` prints it. */
export function bytesOf(text: string): Buffer {
  return Buffer.from(text.slice(2), 'hex')
}
