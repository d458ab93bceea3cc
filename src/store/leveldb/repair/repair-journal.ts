import { readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { syncDirectory } from '../directory/sync-directory.js'
import { JOURNAL } from '../files/journal-name.js'
import type { LostRecords } from '../files/lost-records.js'

/**
 * File with one line per loss that a repair has caused in the database's files so far. Mended files no longer show that records
 * are missing, so without it the losses of an interrupted repair would be forgotten. While the journal exists, no server opens
 * the database.
 */
export class RepairJournal {
  readonly #directory: string
  readonly before: readonly LostRecords[]
  readonly isContinued: boolean

  private constructor(directory: string, before: readonly LostRecords[] | undefined) {
    this.#directory = directory
    this.before = before ?? []
    this.isContinued = before !== undefined
  }

  static async open(directory: string): Promise<RepairJournal> {
    try {
      return new RepairJournal(directory, decoded(await readFile(join(directory, JOURNAL), 'utf8')))
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return new RepairJournal(directory, undefined)
      if (!(error instanceof SyntaxError)) throw error
      return new RepairJournal(directory, [{ kind: 'tables', file: JOURNAL }])
    }
  }

  /** Call before the file is changed. */
  async add(lost: readonly LostRecords[]): Promise<void> {
    await writeFile(join(this.#directory, JOURNAL), lost.map((one) => `${JSON.stringify(one, encoded)}\n`).join(''), {
      flag: 'a',
      flush: true,
    })
    await syncDirectory(this.#directory)
  }

  async remove(): Promise<void> {
    await rm(join(this.#directory, JOURNAL), { force: true })
    await syncDirectory(this.#directory)
  }
}

/** Replacer for `JSON.stringify`, which receives buffers as `Buffer.toJSON` makes them. */
function encoded(_: string, value: unknown): unknown {
  const isBuffer = typeof value === 'object' && value !== null && 'type' in value && value.type === 'Buffer'
  return isBuffer && 'data' in value ? { hex: Buffer.from(value.data as number[]).toString('hex') } : value
}

/** Skips an incomplete last line, whose change was not made yet. */
function decoded(text: string): LostRecords[] {
  const lines = text.split('\n').slice(0, -1)
  return lines.map((line) =>
    JSON.parse(line, (_, value: unknown) =>
      typeof value === 'object' && value !== null && 'hex' in value ? Buffer.from(String(value.hex), 'hex') : value,
    ),
  )
}
