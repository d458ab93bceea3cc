import type { RawCell, RawRow, RawRows } from '../check/raw-rows.js'
import type { PostgresAddress } from './postgres-address.js'
import { unavailable } from './postgres-failures.js'
import { bytesOf, type Statement, type TextRow } from './postgres-package.js'
import { Sessions } from './sessions.js'

/** With the values of all but long ones, a page has some megabytes. */
const PAGE_CELLS = 4096

export async function openRawRows(address: PostgresAddress): Promise<RawRows & { close(): Promise<void> }> {
  return new PostgresRows(await Sessions.open(address, { sessionsMax: 1 }), address.table)
}

class PostgresRows implements RawRows {
  readonly #sessions: Sessions
  readonly #select: string

  constructor(sessions: Sessions, table: string) {
    this.#sessions = sessions
    this.#select = `select key, family, qualifier, case when family <> 'd' then value end, octet_length(value) from ${table}`
  }

  async page(start: Buffer): Promise<readonly RawRow[]> {
    const text = `${this.#select} where key >= $1 order by key, family, qualifier limit ${PAGE_CELLS}`
    const cells = await this.#ask({ text, values: [start] })
    const rows = rowsIn(cells)
    if (cells.length < PAGE_CELLS) return rows
    // The last row may go on. Where it is the only one, it is read as a whole.
    if (rows.length > 1) return rows.slice(0, -1)
    const whole = rows[0] && (await this.row(rows[0].key))
    return whole === undefined ? rows : [whole]
  }

  async row(key: Buffer): Promise<RawRow | undefined> {
    const text = `${this.#select} where key = $1 order by key, family, qualifier`
    return rowsIn(await this.#ask({ text, values: [key] }))[0]
  }

  async close(): Promise<void> {
    await this.#sessions.close()
  }

  async #ask(statement: Statement): Promise<readonly TextRow[]> {
    try {
      return await this.#sessions.ask(statement)
    } catch (error) {
      throw unavailable(error)
    }
  }
}

function rowsIn(cells: readonly TextRow[]): RawRow[] {
  const rows: { readonly key: Buffer; readonly cells: RawCell[] }[] = []
  let last: string | null | undefined
  for (const [key, family, qualifier, value, valueBytes] of cells) {
    if (key !== last) rows.push({ key: bytesOf(key ?? ''), cells: [] })
    last = key
    rows.at(-1)?.cells.push({
      family: family ?? '',
      qualifier: bytesOf(qualifier ?? ''),
      timestampMicros: 0,
      value: value == null ? undefined : bytesOf(value),
      valueBytes: Number(valueBytes),
    })
  }
  return rows
}
