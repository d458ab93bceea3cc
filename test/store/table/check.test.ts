import { beforeEach, describe, expect, test } from 'vitest'
import { encodeLease } from '../../../src/leases/rules/codec/lease.js'
import { ackKey, encodeAckTs, encodeNotified, notifiedKey } from '../../../src/observers/rules/codec/cell-key.js'
import { attachedKey } from '../../../src/percolator/codec/attached-key.js'
import { encodeLock } from '../../../src/percolator/codec/lock.js'
import { encodeWrite } from '../../../src/percolator/codec/write.js'
import type { Lock } from '../../../src/percolator/lock.js'
import { rollbackRecord, type WriteRecord } from '../../../src/percolator/write.js'
import { ComparedTransactions } from '../../../src/store/table/check/compared-transactions.js'
import type { RawRow, RawRows } from '../../../src/store/table/check/raw-rows.js'
import { encodeFormat, FIRST_FORMAT } from '../../../src/store/table/format/format-row.js'
import { descending, LOCK, REVISION } from '../../../src/store/table/layout/layout.js'
import type { TableStore } from '../../../src/store/table/table-store.js'
import { del, prewriteOf, put, START_MS, utf8, write } from '../support.js'
import { MemoryTable } from './memory-table.js'
import { openTableStore } from './open-table-store.js'
import { checked, ORACLE_ROW, PlantedRows } from './planted-rows.js'

const LONG = 'long '.repeat(2000)
const NOTHING = Buffer.alloc(0)
const REVISED = { family: 'v', qualifier: REVISION, value: Buffer.alloc(16, 1) }

function putAt(startTs: number, commitTs: number, shortValue: Buffer | undefined = utf8('v')): WriteRecord {
  const rest = { expireTs: 0, leaseFence: 0, isProtected: false, hasOverlappedRollback: false }
  return { type: 'put', startTs, commitTs, shortValue, ...rest }
}

const record = (family: 'w' | 'r', { commitTs, ...rest }: WriteRecord) => ({
  family,
  qualifier: descending(commitTs),
  value: encodeWrite({ commitTs, ...rest }),
})

function lockOf(primary: string, startTs: number, rest: Partial<Lock> = {}) {
  const lock: Lock = {
    ...{ type: 'put', primary: utf8(primary), startTs, ttlMs: 3000, shortValue: utf8('v'), expireTs: 0, leaseFence: 0 },
    ...{ forUpdateTs: 0, txnSize: 1, minCommitTs: 0, useAsyncCommit: false, secondaries: [], rollbackTs: [] },
    ...rest,
  }
  return { family: 'l', qualifier: LOCK, value: encodeLock(lock) }
}

let table: MemoryTable
let store: TableStore
let rows: PlantedRows

/** Every kind of record, of ended transactions and of one that is under way. */
beforeEach(async () => {
  table = new MemoryTable()
  store = await openTableStore(table, { now: () => START_MS })
  await write(store, 10, 11, [put('a', 'short'), put('b', LONG), put('\0zero')])
  await write(store, 20, 21, [put('a', 'later'), del('b')])
  await store.prewrite(prewriteOf(30, [put('a'), put('c', LONG)]))
  await store.rollback({ keys: [utf8('a'), utf8('c')], startTs: 30 })
  await store.prewrite(prewriteOf(40, [put('d', LONG), put('e')], { lockTtl: 100_000 }))
  await store.system.write([{ name: 'pin/x', value: Buffer.from('920102', 'hex') }])
  rows = new PlantedRows(table)
})

/** Of the check as it runs beside transactions that live. */
const now = (): number => 1000

describe('a sound table', () => {
  test('nothing is found, and all is counted', async () => {
    const { table: counted, findings } = await checked(rows, { now })
    expect(findings).toEqual([])
    expect(counted).toMatchObject({ rows: 6, serverRows: 2, versions: 7, locks: 2, problems: 0, warnings: 0 })
    expect(counted.largestRow).toMatchObject({ key: utf8('b') })
    expect(counted.bytes).toBeGreaterThan(2 * LONG.length)
  })

  test('rows of observers and leases, which differ from those on LevelDB', async () => {
    const { cells, system } = store
    const cell = { id: 7, key: utf8('k') }
    await cells.hint(cell.id, cell.key, { commitTs: 51, depth: 0 })
    const [hinted] = await cells.hinted(cell.id, { after: undefined, limit: 1 })
    await cells.claim(cell.id, hinted ?? { ...cell, claim: undefined }, {
      fence: 60,
      untilMs: 1000,
      worker: 'w',
      leaseMs: 100,
    })
    await write(store, 50, 51, [
      { op: 'put', key: ackKey(cell), value: encodeAckTs(50) },
      { op: 'put', key: notifiedKey(cell, 50), value: encodeNotified({ kind: 'notified', depth: 0 }) },
      { op: 'put', key: attachedKey(52, utf8('k')), value: new Uint8Array() },
    ])
    const lease = { fence: 52, ttlMs: 1000, holder: 'h', state: 'held', endsTs: 99, hasKeys: true } as const
    await system.write([{ name: 'lease/a', value: encodeLease(lease, Buffer.alloc(8)) }])
    await system.write([{ name: 'pin/x', value: undefined }]) // Leaves something.
    const { findings, table: counted } = await checked(rows, { now })
    expect(findings).toEqual([])
    expect(counted).toMatchObject({ rows: 6, serverRows: 7 })
  })

  test('locks whose time is over, and whose primary is locked, committed or rolled back, wait for a reader', async () => {
    const late = (): number => START_MS
    expect((await checked(rows, { now: late })).findings).toEqual([])
    await store.commit({ keys: [utf8('d')], startTs: 40, commitTs: 41 })
    expect((await checked(rows, { now: late })).findings).toEqual([])
    await store.prewrite(prewriteOf(50, [put('f'), put('g')]))
    await store.rollback({ keys: [utf8('f')], startTs: 50 })
    expect((await checked(rows, { now: late })).findings).toEqual([])
  })
})

interface Case {
  readonly what: string
  readonly plant: () => void
  readonly finds: readonly string[]
  readonly message: RegExp
}

const CASES: readonly Case[] = [
  {
    what: 'a record that does not decode',
    plant: () => rows.plant('a', { family: 'w', qualifier: descending(99), value: utf8('?') }),
    finds: ['damaged_record'],
    message: /the cell w:0x\w+ of "a": a write record/,
  },
  {
    what: 'a lock that does not decode',
    plant: () => rows.plant('a', { family: 'l', qualifier: LOCK, value: NOTHING }),
    finds: ['damaged_record'],
    message: /the cell l:l of "a": a lock record/,
  },
  {
    what: 'a record whose name is no timestamp',
    plant: () => rows.plant('a', { family: 'r', qualifier: 'x', value: encodeWrite(rollbackRecord(3, false)) }),
    finds: ['damaged_record'],
    message: /r:x of "a": the name of a write record is no timestamp/,
  },
  {
    what: 'an unknown family',
    plant: () => rows.plant('a', { family: 'other', qualifier: 'x', value: NOTHING }),
    finds: ['unknown_column'],
    message: /"a" has a cell other:x/,
  },
  {
    what: 'an unknown column',
    plant: () => rows.plant('a', { family: 'l', qualifier: 'x', value: NOTHING }),
    finds: ['unknown_column'],
    message: /"a" has a cell l:x/,
  },
  {
    what: 'a record of the server on a row of a user',
    plant: () => rows.plant('a', { family: 'o', qualifier: 'o', value: NOTHING }),
    finds: ['unknown_column'],
    message: /o:o/,
  },
  {
    what: 'a row that no key has',
    plant: () => rows.plant('\0\u0002x', REVISED),
    finds: ['unknown_row'],
    message: /no server writes the row 0x000278/,
  },
  {
    what: 'a row without a revision',
    plant: () => rows.plant('n', record('w', putAt(5, 6))),
    finds: ['missing_revision'],
    message: /"n" has no revision/,
  },
  {
    what: 'a revision that is cut short',
    plant: () => rows.plant('n', { ...REVISED, value: utf8('x') }),
    finds: ['missing_revision'],
    message: /the revision of "n" has 1 bytes/,
  },
  {
    what: 'a cell that does not stand at timestamp 0',
    plant: () => rows.plant('a', { ...record('w', putAt(5, 6)), timestampMicros: 7000 }),
    finds: ['bad_cell_timestamp'],
    message: /of "a" stands at 7000 µs, not at 0/,
  },
  {
    what: 'a Put among the Rollback records',
    plant: () => rows.plant('a', record('r', putAt(5, 6))),
    finds: ['wrong_family'],
    message: /the put record of "a" at 6 stands in family r/,
  },
  {
    what: 'a Rollback record among the Puts',
    plant: () => rows.plant('a', record('w', rollbackRecord(5, false))),
    finds: ['wrong_family'],
    message: /the rollback record of "a" at 5 stands in family w/,
  },
  {
    what: 'a long value that is missing',
    plant: () => rows.plant('a', record('w', { ...putAt(5, 6), shortValue: undefined })),
    finds: ['missing_value'],
    message: /the put record of "a" at 6 has lost its value, written at 5/,
  },
  {
    what: 'the long value of a lock that is missing',
    plant: () => rows.plant('a', lockOf('a', 60, { shortValue: undefined })),
    finds: ['missing_value'],
    message: /the lock of "a" by the transaction at 60 has lost its value/,
  },
  {
    what: 'a long value that nothing names',
    plant: () => rows.plant('a', { family: 'd', qualifier: descending(5), value: utf8('v') }),
    finds: ['orphan_value'],
    message: /the value of "a" written at 5 belongs to no record/,
  },
  {
    what: 'a lock beside the commit of its transaction',
    plant: () => rows.plant('a', lockOf('a', 20)),
    finds: ['bad_lock'],
    message: /stands although that is committed at 21/,
  },
  {
    what: 'a lock beside the rollback of its transaction',
    plant: () => rows.plant('a', lockOf('a', 30)),
    finds: ['bad_lock'],
    message: /stands although that is rolled back at 30/,
  },
  {
    what: 'a lock without a primary',
    plant: () => rows.plant('a', lockOf('', 60)),
    finds: ['bad_lock'],
    message: /names no primary/,
  },
  {
    what: 'a lock that its primary knows nothing of',
    plant: () => {
      rows.plant('n', lockOf('a', 6))
      rows.plant('n', REVISED)
    },
    finds: ['orphan_lock'],
    message: /the lock of "n" by the transaction at 6 is left over: its primary "a" has neither/,
  },
  {
    what: 'a lock whose primary has no row',
    plant: () => {
      rows.plant('n', lockOf('nowhere', 6))
      rows.plant('n', REVISED)
    },
    finds: ['orphan_lock'],
    message: /its primary "nowhere"/,
  },
  {
    what: 'a commit that is not above its start',
    plant: () => rows.plant('a', record('w', putAt(7, 6))),
    finds: ['bad_timestamps'],
    message: /the put record of "a" at 6 says that its transaction began at 7/,
  },
  {
    what: 'a Rollback record away from its start',
    plant: () => rows.plant('a', record('r', { ...rollbackRecord(5, false), commitTs: 6 })),
    finds: ['bad_timestamps'],
    message: /the rollback record of "a" at 6 says that its transaction began at 5/,
  },
  {
    what: 'two commits of one transaction on one row',
    plant: () => rows.plant('a', record('w', putAt(20, 25))),
    finds: ['contradiction', 'split_transaction'],
    message: /stands beside a put of its transaction at 25/,
  },
  {
    what: 'two records at one timestamp',
    plant: () => rows.plant('a', record('r', rollbackRecord(21, false))),
    finds: ['contradiction'],
    message: /at 21 stands beside another one at this timestamp/,
  },
  {
    what: 'a commit and a rollback of one transaction on one row',
    plant: () => rows.plant('a', record('r', rollbackRecord(10, false))),
    finds: ['contradiction', 'split_transaction'],
    message: /stands beside a put of its transaction at 11/,
  },
  {
    what: 'one transaction, committed at two timestamps',
    plant: () => {
      rows.plant('n', record('w', putAt(20, 22)))
      rows.plant('n', REVISED)
    },
    finds: ['split_transaction'],
    message: /the transaction at 20 is committed at 22 on "n", and committed at 21 on "a"/,
  },
  {
    what: 'one transaction, committed on a row and rolled back on another',
    plant: () => {
      rows.plant('n', record('r', rollbackRecord(20, false)))
      rows.plant('n', REVISED)
    },
    finds: ['split_transaction'],
    message: /the transaction at 20 is rolled back on "n", and committed at 21 on "a"/,
  },
  {
    what: 'a mark below the newest record',
    plant: () => {
      rows = new PlantedRows(table, 20)
    },
    finds: ['above_mark'],
    message: /the rollback record of "(a|c)" at 30 is above the oracle's mark 20/,
  },
  {
    what: 'no row of the oracle',
    plant: () => rows.more.delete(ORACLE_ROW.toString('latin1')),
    finds: ['above_mark'],
    message: /no row of the oracle/,
  },
  {
    what: 'a damaged row of the oracle',
    plant: () => {
      rows = new PlantedRows(table, undefined)
      rows.plant(ORACLE_ROW, { family: 'o', qualifier: 'o', value: utf8('{}') })
    },
    finds: ['damaged_record'],
    message: /the server's row "oracle": the oracle's row is damaged/,
  },
  {
    what: 'a damaged record of the format',
    plant: () => rows.plant('\0\0format', { family: 'o', qualifier: 'o', value: utf8('{}') }),
    finds: ['damaged_record'],
    message: /the server's row "format": the record of the format is damaged/,
  },
  {
    what: 'a damaged secret',
    plant: () => rows.plant('\0\0secret', { family: 'o', qualifier: 'o', value: utf8('short') }),
    finds: ['damaged_record'],
    message: /the server's row "secret": the secret has 5 bytes/,
  },
  {
    what: 'a damaged record of a restore',
    plant: () => rows.plant('\0\0restore', { family: 'o', qualifier: 'o', value: utf8('?') }),
    finds: ['damaged_record'],
    message: /the server's row "restore"/,
  },
  {
    what: 'a damaged pin',
    plant: () => rows.plant('\0\0pin/y', { family: 'o', qualifier: 'o', value: utf8('?') }),
    finds: ['damaged_record'],
    message: /the server's row "pin\/y"/,
  },
  {
    what: 'a damaged lease',
    plant: () => rows.plant('\0\0lease/y', { family: 'o', qualifier: 'o', value: utf8('?') }),
    finds: ['damaged_record'],
    message: /the server's row "lease\/y"/,
  },
  {
    what: 'a damaged claim of a cell',
    plant: () => rows.plant('\0\0notify/12345678k', { family: 'o', qualifier: 'c', value: utf8('?') }),
    finds: ['damaged_record'],
    message: /the server's row "notify\/12345678k"/,
  },
  {
    what: 'an acknowledgement without a revision',
    plant: () =>
      rows.plant('\0\0ack/12345678k', {
        family: 'w',
        qualifier: descending(99),
        value: record('w', putAt(98, 99)).value,
      }),
    finds: ['missing_revision'],
    message: /has no revision/,
  },
  {
    what: "a foreign cell on a row of the server's",
    plant: () => rows.plant(ORACLE_ROW, { family: 'w', qualifier: 'x', value: NOTHING }),
    finds: ['unknown_column'],
    message: /the server's row "oracle" has a cell w:x/,
  },
  {
    what: "a revision on a row of the server's that has a record",
    plant: () => rows.plant(ORACLE_ROW, { family: 'v', qualifier: REVISION, value: Buffer.alloc(16) }),
    finds: ['unknown_column'],
    message: /the server's row "oracle" has a cell v:r/,
  },
  {
    what: "a cell of a row of the server's that does not stand at timestamp 0",
    plant: () =>
      rows.plant('\0\0secret', { family: 'o', qualifier: 'o', value: Buffer.alloc(32), timestampMicros: 1000 }),
    finds: ['bad_cell_timestamp'],
    message: /the server's row "secret" has a cell at 1000 µs/,
  },
  {
    what: 'a row that will soon be full',
    plant: () =>
      rows.plant('d', { family: 'd', qualifier: descending(40), value: NOTHING, valueBytes: 101 * 1024 * 1024 }),
    finds: ['large_row'],
    message: /"d" has 101 MiB/,
  },
]

const WARNINGS = ['orphan_lock', 'orphan_value', 'large_row', 'incomplete_restore']

describe('what is found', () => {
  for (const { what, plant, finds, message } of CASES)
    test(what, async () => {
      plant()
      // All locks of the table but those of the case live.
      const { findings, table: counted } = await checked(rows, { now: () => 50_000 })
      expect(findings.map(({ kind }) => kind)).toEqual(finds)
      expect(findings[0]?.message).toMatch(message)
      for (const { kind, isProblem } of findings) expect([kind, isProblem]).toEqual([kind, !WARNINGS.includes(kind)])
      expect(counted.problems + counted.warnings).toBe(findings.length)
    })

  test('an app profile that routes to another cluster than servers use', async () => {
    rows.plant('\0\0format', {
      ...{ family: 'o', qualifier: 'o' },
      value: encodeFormat({ ...FIRST_FORMAT, cluster: 'a', turn: 1 }),
    })
    const serving = { place: 't', newest: FIRST_FORMAT }
    expect((await checked(rows, { now, serving })).table).toMatchObject({ format: 1, cluster: 'a', problems: 0 })
    const { findings } = await checked(rows, { now, serving: { ...serving, cluster: 'b' } })
    expect(findings).toMatchObject([{ kind: 'bad_settings', isProblem: true }])
    expect(findings[0]?.message).toMatch(/^t: the table is served from cluster a, but this app profile routes to b/)
  })

  test('a table of a newer format is not checked', async () => {
    rows.plant('\0\0format', {
      ...{ family: 'o', qualifier: 'o' },
      value: encodeFormat({ format: 2, program: '0.9.0', turn: 1 }),
    })
    const check = checked(rows, { now, serving: { place: 't', newest: FIRST_FORMAT } })
    await expect(check).rejects.toThrow('t: the table has format 2, written by a newer PerKV (0.9.0 or later)')
  })

  test('a restore that is not complete', async () => {
    const fresh = new MemoryTable()
    const own = await openTableStore(fresh)
    async function* cutOff() {
      yield [{ key: utf8('a'), value: utf8('1'), commitTs: 5 }]
      throw new Error('cut off')
    }
    await expect(own.upkeep.restore({ id: 'ab'.repeat(16), ts: 7 }, cutOff(), false)).rejects.toThrow('cut off')
    const { findings } = await checked(new PlantedRows(fresh))
    expect(findings).toMatchObject([{ kind: 'incomplete_restore', isProblem: false }])
  })

  test('not what is only in flight: what a second look does not show', async () => {
    rows.plant('n', record('w', putAt(20, 22)))
    rows.plant('n', lockOf('a', 6))
    rows.plant('n', { ...REVISED, value: utf8('x') })
    class Passing implements RawRows {
      page(start: Buffer): Promise<readonly RawRow[]> {
        return rows.page(start)
      }
      async row(key: Buffer): Promise<RawRow | undefined> {
        if (key.toString() === 'n') rows.more.delete('n')
        return rows.row(key)
      }
    }
    expect((await checked(new Passing(), { now: () => 50_000 })).findings).toEqual([])
  })

  test('in bounded memory: of more transactions a part is compared, each in all of its rows', async () => {
    const many = 100
    for (let i = 0; i < many; i++) {
      const startTs = 100 + 2 * i
      await write(store, startTs, startTs + 1, [put(`x${i}`)])
      rows.plant(`y${i}`, record('r', rollbackRecord(startTs, false)))
      rows.plant(`y${i}`, REVISED)
    }
    const compared = new ComparedTransactions(40)
    const { findings, table: counted } = await checked(rows, { now, compared })
    const found = findings.filter(({ kind }) => kind === 'split_transaction').length
    expect(counted.comparedOneIn).toBeGreaterThan(1)
    expect(compared.count).toBeLessThanOrEqual(40)
    expect(found).toBeGreaterThan(0)
    expect(found).toBeLessThanOrEqual(40)
    expect((await checked(rows, { now })).findings).toHaveLength(many)
  })
})
