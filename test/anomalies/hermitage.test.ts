import { rm } from 'node:fs/promises'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { startServer, type TestServer } from '../http/support.js'
import {
  HttpTransaction,
  ISOLATIONS,
  type Isolation,
  type LockOptions,
  MODES,
  type Mode,
  Refused,
} from './http-transaction.js'

/**
 * The anomalies of Adya's thesis, as Martin Kleppmann's Hermitage (github.com/ept/hermitage) plays them on SQL databases,
 * against each mode and each isolation level, over HTTP. Every one starts with the rows 1 = 10 and 2 = 20.
 *
 * What happens in each cell (O: optimistic, P: pessimistic; SI: snapshot, SER: serializable):
 *
 * | anomaly                          | O, SI        | O, SER   | P, SI          | P, SER   |
 * | -------------------------------- | ------------ | -------- | -------------- | -------- |
 * | G0 dirty write                   | conflict     | conflict | waits          | waits    |
 * | G1a, G1b, G1c, OTV, PMP          | snapshot     | snapshot | snapshot       | snapshot |
 * | PMP, write predicate             | conflict     | conflict | for_update (1) | refused  |
 * | P4 lost update                   | conflict     | conflict | for_update (1) | refused  |
 * | G-single, and by a dependency    | snapshot     | snapshot | snapshot       | snapshot |
 * | G-single, write predicate        | conflict     | conflict | for_update (1) | refused  |
 * | G2-item write skew               | possible (2) | refused  | possible (2)   | refused  |
 * | G2 phantoms, read-only anomaly   | possible     | refused  | possible       | refused  |
 *
 * "snapshot": both commit, and the reader sees one snapshot. "conflict": the second to commit is refused as it wrote what
 * the first did. "refused": it read what the first wrote (`serializable_read`).
 *
 * (1) As in TiDB and MySQL, a pessimistic write locks the latest version, whatever the transaction read of its snapshot
 * before. Writes that are based on reads need `for_update=true`; based on a plain read they may undo a commit, which is
 * asserted here too as what the level allows. Locking reads see the latest versions, so they may be newer than plain
 * reads in the same transaction: who mixes the two mixes two times.
 * (2) Reading for update prevents it, in both modes.
 */

type Row = '1' | '2' | '3' | '4'

/** A transaction of a script; rows are keys under a prefix of the test's own. */
class Session {
  constructor(
    readonly txn: HttpTransaction,
    readonly prefix: string,
  ) {}

  async read(row: Row, options: LockOptions = {}): Promise<number | undefined> {
    const value = await this.txn.get(this.prefix + row, options)
    return value === undefined ? undefined : Number(value)
  }
  readForUpdate(row: Row): Promise<number | undefined> {
    return this.read(row, { forUpdate: true })
  }
  write(row: Row, value: number, options: LockOptions = {}): Promise<void> {
    return this.txn.put(this.prefix + row, String(value), options)
  }
  remove(row: Row): Promise<void> {
    return this.txn.delete(this.prefix + row)
  }
  /** The rows that a predicate holds for. */
  async select(isWanted: (value: number) => boolean = () => true): Promise<Record<string, number>> {
    const found = [...(await this.txn.scan(this.prefix))].map(([key, value]) => [key.at(-1), Number(value)] as const)
    return Object.fromEntries(found.filter(([, value]) => isWanted(value)))
  }
  /** `delete where value = ...`, each row locked before it is looked at. */
  async removeWhere(value: number, rows: readonly Row[]): Promise<void> {
    for (const row of rows) if ((await this.readForUpdate(row)) === value) await this.remove(row)
  }
  /** @returns how the commit ended. */
  commit(): Promise<string> {
    return outcomeOf(this.txn.commit())
  }
  async rollback(): Promise<void> {
    await this.txn.rollback()
  }
}

/** `ok`, or the code, with the reason of a write conflict. */
async function outcomeOf(promise: Promise<unknown>): Promise<string> {
  try {
    await promise
    return 'ok'
  } catch (error) {
    if (!(error instanceof Refused)) throw error
    const reason = error.problem['reason']
    return reason === undefined ? error.code : `${error.code} ${reason}`
  }
}

const CONFLICT = 'write_conflict optimistic'
const READ_CHANGED = 'write_conflict serializable_read'

describe.each(MODES)('%s', (mode) => {
  describe.each(ISOLATIONS)('%s', (isolation) => {
    const cell = new Cell(mode, isolation)
    beforeAll(() => cell.start())
    afterAll(() => cell.stop())
    anomalies(cell)
  })
})

/** One mode and one isolation level, and a server for them. */
class Cell {
  #server: TestServer | undefined
  #url = ''
  #tests = 0

  constructor(
    readonly mode: Mode,
    readonly isolation: Isolation,
  ) {}

  get isOptimistic(): boolean {
    return this.mode === 'optimistic'
  }
  get isSerializable(): boolean {
    return this.isolation === 'serializable'
  }

  async start(): Promise<void> {
    this.#server = await startServer()
    this.#url = `http://127.0.0.1:${await this.#server.listen()}`
  }
  async stop(): Promise<void> {
    await this.#server?.app.close()
    await this.#server?.store.close()
    if (this.#server) await rm(this.#server.directory, { recursive: true, force: true })
  }

  /** Rows 1 = 10 and 2 = 20, and what begins transactions on them. */
  async rows(first = 10, second = 20): Promise<{ begin: () => Promise<Session>; final: () => Promise<unknown> }> {
    const prefix = `${++this.#tests}/`
    const begin = async (): Promise<Session> =>
      new Session(await HttpTransaction.begin(this.#url, { mode: this.mode, isolation: this.isolation }), prefix)
    const setup = await begin()
    await setup.write('1', first)
    await setup.write('2', second)
    expect(await setup.commit()).toBe('ok')
    return { begin, final: async () => (await begin()).select() }
  }

  /** That a write waits for whoever holds its row, and ends unheard when asked not to wait. */
  async expectBlocked(session: Session, row: Row): Promise<void> {
    expect(await outcomeOf(session.write(row, 0, { lockWaitMs: 0 }))).toBe('lock_wait_timeout')
  }
}

function anomalies(cell: Cell): void {
  const { isOptimistic, isSerializable } = cell

  test('G0: dirty writes do not mix', async () => {
    const { begin, final } = await cell.rows()
    const [t1, t2] = [await begin(), await begin()]
    await t1.write('1', 11)
    if (!isOptimistic) await cell.expectBlocked(t2, '1')
    const written = t2.write('1', 12)
    if (isOptimistic) await written
    await t1.write('2', 21)
    expect(await t1.commit()).toBe('ok')
    expect(await (await begin()).select()).toEqual({ 1: 11, 2: 21 })
    await written
    await t2.write('2', 22)
    expect(await t2.commit()).toBe(isOptimistic ? CONFLICT : 'ok')
    expect(await final()).toEqual(isOptimistic ? { 1: 11, 2: 21 } : { 1: 12, 2: 22 })
  })

  test('G0: dirty writes of one that has read', async () => {
    const { begin, final } = await cell.rows()
    const [t1, t2] = [await begin(), await begin()]
    expect(await t2.read('4')).toBeUndefined()
    await t1.write('1', 11)
    await t1.write('2', 21)
    if (!isOptimistic) await cell.expectBlocked(t2, '2')
    const written = t2.write('2', 22)
    if (isOptimistic) await written
    expect(await t1.commit()).toBe('ok')
    await written
    await t2.write('1', 12)
    expect(await t2.commit()).toBe(isOptimistic ? CONFLICT : 'ok')
    expect(await final()).toEqual(isOptimistic ? { 1: 11, 2: 21 } : { 1: 12, 2: 22 })
  })

  test('G0: locks taken crosswise are a deadlock for one of the two', async () => {
    const { begin, final } = await cell.rows()
    const [t1, t2] = [await begin(), await begin()]
    await t1.write('1', 11)
    await t2.write('2', 22)
    const finish = async (txn: Session, row: Row, value: number): Promise<string> => {
      const outcome = await outcomeOf(txn.write(row, value))
      if (outcome === 'ok') return txn.commit()
      await txn.rollback()
      return outcome
    }
    const outcomes = await Promise.all([finish(t1, '2', 12), finish(t2, '1', 21)])
    expect(outcomes.sort()).toEqual(['ok', isOptimistic ? CONFLICT : 'deadlock'].sort())
    expect([
      { 1: 11, 2: 12 },
      { 1: 21, 2: 22 },
    ]).toContainEqual(await final())
  })

  test('G1a: no read of what is rolled back', async () => {
    const { begin, final } = await cell.rows()
    const [t1, t2] = [await begin(), await begin()]
    await t1.write('1', 101)
    expect(await t2.select()).toEqual({ 1: 10, 2: 20 })
    await t1.rollback()
    expect(await t2.select()).toEqual({ 1: 10, 2: 20 })
    expect(await t2.commit()).toBe('ok')
    expect(await outcomeOf(t1.txn.commit())).toBe('txn_not_found')
    expect(await final()).toEqual({ 1: 10, 2: 20 })
  })

  test('G1b: no read of what is overwritten before the commit', async () => {
    const { begin } = await cell.rows()
    const [t1, t2] = [await begin(), await begin()]
    await t1.write('1', 101)
    expect(await t2.read('1')).toBe(10)
    await t1.write('1', 11)
    expect(await t1.commit()).toBe('ok')
    expect(await t2.read('1')).toBe(10)
    expect(await t2.commit()).toBe('ok')
    expect(await (await begin()).read('1')).toBe(11)
  })

  test('G1c: two do not see each other', async () => {
    const { begin } = await cell.rows()
    const [t1, t2] = [await begin(), await begin()]
    await t1.write('1', 11)
    await t2.write('2', 22)
    expect(await t1.read('2')).toBe(20)
    expect(await t2.read('1')).toBe(10)
    expect(await t1.commit()).toBe('ok')
    // That neither saw the other is a write skew.
    expect(await t2.commit()).toBe(isSerializable ? READ_CHANGED : 'ok')
  })

  test('OTV: what was observed does not vanish', async () => {
    const { begin, final } = await cell.rows()
    const [t1, t2, before] = [await begin(), await begin(), await begin()]
    expect(await before.read('1')).toBe(10)
    await t1.write('1', 11)
    await t1.write('2', 19)
    if (!isOptimistic) await cell.expectBlocked(t2, '1')
    const written = t2.write('1', 12)
    if (isOptimistic) await written
    expect(await t1.commit()).toBe('ok')
    const after = await begin()
    await written
    expect(await after.read('1')).toBe(11)
    await t2.write('2', 18)
    expect(await after.read('2')).toBe(19)
    expect(await t2.commit()).toBe(isOptimistic ? CONFLICT : 'ok')
    expect([await after.read('2'), await after.read('1')]).toEqual([19, 11])
    expect(await before.select()).toEqual({ 1: 10, 2: 20 })
    expect([await before.commit(), await after.commit()]).toEqual(['ok', 'ok'])
    expect(await final()).toEqual(isOptimistic ? { 1: 11, 2: 19 } : { 1: 12, 2: 18 })
  })

  test('PMP: a predicate selects the same again', async () => {
    const { begin } = await cell.rows()
    const [t1, t2] = [await begin(), await begin()]
    expect(await t1.select((value) => value === 30)).toEqual({})
    await t2.write('3', 30)
    expect(await t2.commit()).toBe('ok')
    expect(await t1.select((value) => value % 3 === 0)).toEqual({})
    expect(await t1.commit()).toBe('ok')
  })

  test('PMP, write predicate: a plain read', async () => {
    const { begin, final } = await cell.rows()
    const [t1, t2] = [await begin(), await begin()]
    for (const [row, value] of Object.entries(await t1.select())) await t1.write(row as Row, value + 10)
    expect(await t2.select((value) => value === 20)).toEqual({ 2: 20 })
    if (!isOptimistic) await cell.expectBlocked(t2, '2')
    const removed = t2.remove('2')
    if (isOptimistic) await removed
    expect(await t1.commit()).toBe('ok')
    await removed
    // Snapshot, pessimistic: row 2 goes, which has 30 by now.
    expect(await t2.commit()).toBe(isOptimistic ? CONFLICT : isSerializable ? READ_CHANGED : 'ok')
    expect(await final()).toEqual(isOptimistic || isSerializable ? { 1: 20, 2: 30 } : { 1: 20 })
  })

  test('PMP, write predicate: reading for update', async () => {
    const { begin, final } = await cell.rows()
    const [t1, t2] = [await begin(), await begin()]
    for (const row of ['1', '2'] as const) await t1.write(row, Number(await t1.readForUpdate(row)) + 10)
    const removed = t2.removeWhere(20, ['1', '2'])
    if (isOptimistic) await removed
    expect(await t1.commit()).toBe('ok')
    await removed
    expect(await t2.commit()).toBe(isOptimistic ? CONFLICT : 'ok')
    expect(await final()).toEqual(isOptimistic ? { 1: 20, 2: 30 } : { 2: 30 }) // Of the rows as they are now, 1 has 20.
  })

  test('P4: a lost update after a plain read', async () => {
    const { begin, final } = await cell.rows()
    const [t1, t2] = [await begin(), await begin()]
    expect([await t1.read('1'), await t2.read('1')]).toEqual([10, 10])
    await t1.write('1', 11)
    if (!isOptimistic) await cell.expectBlocked(t2, '1')
    const written = t2.write('1', 12)
    if (isOptimistic) await written
    expect(await t1.commit()).toBe('ok')
    await written
    expect(await t2.commit()).toBe(isOptimistic ? CONFLICT : isSerializable ? READ_CHANGED : 'ok')
    expect(await final()).toEqual(isOptimistic || isSerializable ? { 1: 11, 2: 20 } : { 1: 12, 2: 20 })
  })

  test('P4: no lost update after reading for update', async () => {
    const { begin, final } = await cell.rows()
    const [t1, t2] = [await begin(), await begin()]
    await t1.write('1', Number(await t1.readForUpdate('1')) + 1)
    const read = t2.readForUpdate('1')
    if (isOptimistic) expect(await read).toBe(10)
    expect(await t1.commit()).toBe('ok')
    await t2.write('1', Number(await read) + 1)
    expect(await t2.commit()).toBe(isOptimistic ? CONFLICT : 'ok')
    expect(await final()).toEqual({ 1: isOptimistic ? 11 : 12, 2: 20 })
  })

  test('G-single: no read skew', async () => {
    const { begin } = await cell.rows()
    const [t1, t2] = [await begin(), await begin()]
    expect(await t1.read('1')).toBe(10)
    expect(await t2.select()).toEqual({ 1: 10, 2: 20 })
    await t2.write('1', 12)
    await t2.write('2', 18)
    expect(await t2.commit()).toBe('ok')
    expect(await t1.read('2')).toBe(20)
    expect(await t1.commit()).toBe('ok')
  })

  test('G-single: no read skew by predicates that depend on each other', async () => {
    const { begin } = await cell.rows()
    const [t1, t2] = [await begin(), await begin()]
    expect(await t1.select((value) => value % 5 === 0)).toEqual({ 1: 10, 2: 20 })
    for (const row of Object.keys(await t2.select((value) => value === 10))) await t2.write(row as Row, 12)
    expect(await t2.commit()).toBe('ok')
    expect(await t1.select((value) => value % 3 === 0)).toEqual({})
    expect(await t1.commit()).toBe('ok')
  })

  test('G-single: read skew by a write predicate after plain reads', async () => {
    const { begin, final } = await cell.rows()
    const [t1, t2] = [await begin(), await begin()]
    expect(await t1.read('1')).toBe(10)
    expect(await t2.select()).toEqual({ 1: 10, 2: 20 })
    await t2.write('1', 12)
    await t2.write('2', 18)
    expect(await t2.commit()).toBe('ok')
    for (const row of Object.keys(await t1.select((value) => value === 20))) await t1.remove(row as Row)
    const outcome = await t1.commit()
    if (isOptimistic) expect([CONFLICT, READ_CHANGED]).toContain(outcome)
    else expect(outcome).toBe(isSerializable ? READ_CHANGED : 'ok')
    expect(await final()).toEqual(isOptimistic || isSerializable ? { 1: 12, 2: 18 } : { 1: 12 })
  })

  test('G-single: no read skew by a write predicate when reading for update', async () => {
    const { begin, final } = await cell.rows()
    const [t1, t2] = [await begin(), await begin()]
    expect(await t1.readForUpdate('1')).toBe(10)
    const write = async (): Promise<string> => {
      await t2.write('1', 12)
      await t2.write('2', 18)
      return t2.commit()
    }
    if (!isOptimistic) await cell.expectBlocked(t2, '1')
    const written = write()
    if (isOptimistic) expect(await written).toBe('ok')
    await t1.removeWhere(20, ['1', '2'])
    expect(await t1.commit()).toBe(isOptimistic ? CONFLICT : 'ok')
    expect(await written).toBe('ok')
    expect(await final()).toEqual({ 1: 12, 2: 18 }) // Pessimistic: row 2 is deleted, and then written.
  })

  test('G2-item: write skew', async () => {
    const { begin, final } = await cell.rows()
    const [t1, t2] = [await begin(), await begin()]
    for (const txn of [t1, t2]) expect([await txn.read('1'), await txn.read('2')]).toEqual([10, 20])
    await t1.write('1', 11)
    await t2.write('2', 21)
    expect(await t1.commit()).toBe('ok')
    expect(await t2.commit()).toBe(isSerializable ? READ_CHANGED : 'ok')
    expect(await final()).toEqual({ 1: 11, 2: isSerializable ? 20 : 21 })
  })

  test('G2-item: write skew, both commits at once', async () => {
    for (let round = 0; round < 10; round++) {
      const { begin, final } = await cell.rows()
      const [t1, t2] = [await begin(), await begin()]
      for (const txn of [t1, t2]) expect([await txn.read('1'), await txn.read('2')]).toEqual([10, 20])
      await t1.write('1', 11)
      await t2.write('2', 21)
      const outcomes = await Promise.all([t1.commit(), t2.commit()])
      // One of the two is always left standing.
      expect(outcomes.sort()).toEqual(isSerializable ? ['ok', READ_CHANGED] : ['ok', 'ok'])
      if (isSerializable)
        expect([
          { 1: 11, 2: 20 },
          { 1: 10, 2: 21 },
        ]).toContainEqual(await final())
      else expect(await final()).toEqual({ 1: 11, 2: 21 })
    }
  })

  test('G2-item: no write skew when reading for update', async () => {
    const { begin, final } = await cell.rows()
    const [t1, t2] = [await begin(), await begin()]
    const add = async (txn: Session, row: Row): Promise<void> => {
      const sum = Number(await txn.readForUpdate('1')) + Number(await txn.readForUpdate('2'))
      await txn.write(row, sum)
    }
    await add(t1, '1')
    const added = add(t2, '2')
    if (isOptimistic) await added
    expect(await t1.commit()).toBe('ok')
    await added
    expect(await t2.commit()).toBe(isOptimistic ? CONFLICT : 'ok')
    expect(await final()).toEqual({ 1: 30, 2: isOptimistic ? 20 : 50 })
  })

  test('G2: phantoms', async () => {
    const { begin, final } = await cell.rows()
    const [t1, t2] = [await begin(), await begin()]
    for (const txn of [t1, t2]) expect(await txn.select((value) => value % 3 === 0)).toEqual({})
    await t1.write('3', 30)
    await t2.write('4', 42)
    expect(await t1.commit()).toBe('ok')
    expect(await t2.commit()).toBe(isSerializable ? READ_CHANGED : 'ok')
    expect(await final()).toEqual({ 1: 10, 2: 20, 3: 30, ...(isSerializable ? {} : { 4: 42 }) })
  })

  test('G2: a key that was absent', async () => {
    const { begin, final } = await cell.rows()
    const [t1, t2] = [await begin(), await begin()]
    expect([await t1.read('4'), await t2.read('3')]).toEqual([undefined, undefined])
    await t1.write('3', 30)
    await t2.write('4', 42)
    expect(await t1.commit()).toBe('ok')
    expect(await t2.commit()).toBe(isSerializable ? READ_CHANGED : 'ok')
    expect(await final()).toEqual({ 1: 10, 2: 20, 3: 30, ...(isSerializable ? {} : { 4: 42 }) })
  })

  test('G2: a row deleted from a range', async () => {
    const { begin, final } = await cell.rows()
    const [t1, t2] = [await begin(), await begin()]
    for (const txn of [t1, t2]) expect(Object.keys(await txn.select())).toHaveLength(2)
    await t1.remove('1') // Either may go while the other stays.
    await t2.remove('2')
    expect(await t1.commit()).toBe('ok')
    expect(await t2.commit()).toBe(isSerializable ? READ_CHANGED : 'ok')
    expect(await final()).toEqual(isSerializable ? { 2: 20 } : {})
  })

  test('G2: two rw edges and a reader between them', async () => {
    const { begin, final } = await cell.rows()
    const [t1, t2] = [await begin(), await begin()]
    expect(await t1.select()).toEqual({ 1: 10, 2: 20 })
    await t2.write('2', Number(await t2.readForUpdate('2')) + 5)
    expect(await t2.commit()).toBe('ok')
    const t3 = await begin()
    expect(await t3.select()).toEqual({ 1: 10, 2: 25 })
    expect(await t3.commit()).toBe('ok')
    await t1.write('1', 0)
    expect(await t1.commit()).toBe(isSerializable ? READ_CHANGED : 'ok')
    expect(await final()).toEqual({ 1: isSerializable ? 10 : 0, 2: 25 })
  })

  test('the read-only anomaly (Fekete, O’Neil, O’Neil, 2004)', async () => {
    const { begin, final } = await cell.rows(0, 0) // 1: a current account, 2: a savings account.
    const [withdrawal, deposit] = [await begin(), await begin()]
    expect(await withdrawal.select()).toEqual({ 1: 0, 2: 0 })
    await deposit.write('2', Number(await deposit.readForUpdate('2')) + 20)
    expect(await deposit.commit()).toBe('ok')
    const reader = await begin()
    expect(await reader.select()).toEqual({ 1: 0, 2: 20 })
    expect(await reader.commit()).toBe('ok')
    await withdrawal.write('1', -11) // 10, and a charge as both accounts together do not cover it.
    expect(await withdrawal.commit()).toBe(isSerializable ? READ_CHANGED : 'ok')
    expect(await final()).toEqual({ 1: isSerializable ? 0 : -11, 2: 20 })
  })

  test('writes of different rows never conflict', async () => {
    const { begin, final } = await cell.rows()
    const [t1, t2] = [await begin(), await begin()]
    await t1.write('1', Number(await t1.readForUpdate('1')) + 1)
    await t2.write('2', Number(await t2.readForUpdate('2')) + 1)
    expect(await Promise.all([t1.commit(), t2.commit()])).toEqual(['ok', 'ok'])
    expect(await final()).toEqual({ 1: 11, 2: 21 })
  })

  test('reads of unchanged rows and writes of others commit beside each other', async () => {
    const { begin } = await cell.rows()
    const [t1, t2] = [await begin(), await begin()]
    expect([await t1.read('1'), await t2.read('1')]).toEqual([10, 10])
    await t1.write('3', 30)
    await t2.write('4', 40)
    expect(await Promise.all([t1.commit(), t2.commit()])).toEqual(['ok', 'ok'])
  })
}
