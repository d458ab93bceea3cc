import { randomBytes, randomUUID } from 'node:crypto'
import { Clock } from '../../oracle/clock.js'
import { forwardOverHttp } from '../../oracle/forward-over-http.js'
import { LeaderOracle, type OracleRole } from '../../oracle/leader-oracle.js'
import type { OracleRow } from '../../oracle/oracle-row.js'
import { decodeAsk, encodeAnswer } from '../../oracle/signed-ask.js'
import { CorruptRecord } from '../../percolator/codec/key.js'
import type { AnswerBudget } from '../answer-budget.js'
import { BigtableSetupError } from './bigtable-setup-error.js'
import { BigtableStore } from './bigtable-store.js'
import { openTable } from './google-client.js'
import { RECORD, SECRET_BYTES } from './layout.js'
import { RestoreWatch } from './restore-watch.js'
import { rowKeyOfSystem } from './row-keys.js'
import type { Table } from './table.js'
import type { TableAddress } from './table-address.js'
import { requireSound } from './table-admin.js'

/** Of rows that are guessed rather than read. */
const CACHE_BYTES_MAX = 64 * 1024 * 1024

export interface OpenBigtableOptions {
  readonly address: TableAddress
  /** Where the other servers of the table reach this one. */
  readonly url: string
  readonly answers: AnswerBudget
  /** Called with one sentence when this server begins to lead, or steps down. */
  readonly onRole: (message: string) => void
  readonly onClockStep: (message: string) => void
}

/** This server among those of its table. */
export interface Member {
  /** Of this process. */
  readonly id: string
  readonly role: OracleRole
  /**
   * Answers a signed request of another server for timestamps.
   * @returns undefined when it is not of a server of this table, or not for this one.
   * @throws KvError `overloaded`, `storage_unavailable`
   */
  timestamps(ask: Uint8Array): Promise<Uint8Array | undefined>
}

/**
 * @throws BigtableMissing; BigtableSetupError when the table can't be served from; KvError `storage_unavailable` when Bigtable does
 *   not answer.
 */
export async function openBigtable(options: OpenBigtableOptions): Promise<{ store: BigtableStore; member: Member }> {
  const { address, url, answers, onRole, onClockStep } = options
  await requireSound(address)
  const table = await openTable(address)
  const secret = await secretOf(table)
  const restores = new RestoreWatch(table)
  await restores.start().catch((error: unknown) => {
    if (!(error instanceof CorruptRecord)) throw error
    throw new BigtableSetupError('the record of a restore in the table is damaged: run perkv bigtable check', {
      cause: error,
    })
  })
  const clock = new Clock({ onStep: onClockStep })
  const { forward, close } = forwardOverHttp({ secret })
  const id = randomUUID()
  const oracle = new LeaderOracle({ row: oracleRowOf(table), forward, url, clock, id, onChange: onRole })
  oracle.start()
  const store = new BigtableStore({
    ...{ table, oracle, clock, answers, restores },
    cursorSecret: secret,
    cacheBytesMax: CACHE_BYTES_MAX,
    onClose: close,
  })
  const member: Member = {
    id,
    get role() {
      return oracle.role
    },
    async timestamps(ask) {
      const asked = decodeAsk(secret, url, ask)
      return asked && encodeAnswer(secret, asked.nonce, await oracle.answer(asked.ask))
    },
  }
  return { store, member }
}

/** Made once, by the first server; others that start together find it. It signs cursors, and what servers ask each other. */
async function secretOf(table: Table): Promise<Buffer> {
  const key = rowKeyOfSystem('secret')
  for (let tries = 0; tries < 10; tries++) {
    const found = await recordAt(table, key)
    if (found?.length === SECRET_BYTES) return found
    if (found !== undefined) throw new BigtableSetupError('the secret in the table is damaged: its length is wrong')
    await table.change(key, { family: 'o', qualifier: RECORD, value: undefined }, [
      { family: 'o', qualifier: RECORD, value: randomBytes(SECRET_BYTES) },
    ])
  }
  throw new BigtableSetupError('the secret of the servers can not be written into the table')
}

function oracleRowOf(table: Table): OracleRow {
  const key = rowKeyOfSystem('oracle')
  return {
    read: () => recordAt(table, key),
    swap(expected, next) {
      const value = expected && Buffer.from(expected)
      return table.change(key, { family: 'o', qualifier: RECORD, value }, [
        { family: 'o', qualifier: RECORD, value: Buffer.from(next) },
      ])
    },
  }
}

async function recordAt(table: Table, key: Buffer): Promise<Buffer | undefined> {
  const [row] = await table.rows({ keys: [key], columns: [{ family: 'o' }] })
  return row?.cells[0]?.value
}
