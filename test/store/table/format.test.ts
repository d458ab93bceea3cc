import { expect, test } from 'vitest'
import { encodeServer } from '../../../src/cluster/server-record.js'
import { DEAD_MS } from '../../../src/cluster/sightings.js'
import { sleep } from '../../../src/event-loop/sleep.js'
import {
  changeFormat,
  decodeFormat,
  encodeFormat,
  FIRST_FORMAT,
  type FormatRecord,
  readFormat,
  requireFit,
  type Serving,
  type TableFormat,
} from '../../../src/store/table/format/format-row.js'
import { moveTable } from '../../../src/store/table/format/move-table.js'
import { upgradeTable } from '../../../src/store/table/format/upgrade-table.js'
import { rowKeyOfSystem } from '../../../src/store/table/layout/row-keys.js'
import { hasSize } from '../../../src/store/table/layout/row-size.js'
import { UnusableTable } from '../../../src/store/table/layout/unusable-table.js'
import { registryRowsOf } from '../../../src/store/table/records/registry-table.js'
import { utf8 } from '../support.js'
import { type JoinedServer, JoinedServers } from './joined-servers.js'
import { MemoryTable } from './memory-table.js'
import { inLeaps } from './several-databases.js'

const SECOND_FORMAT: TableFormat = { format: 2, program: '0.9.0' }
const OLD: Serving = { place: 't', newest: FIRST_FORMAT }
const NEW: Serving = { place: 't', newest: SECOND_FORMAT }
const TOO_NEW = 't: the table has format 2, written by a newer PerKV (0.9.0 or later); this one reads up to 1'
const ELSEWHERE =
  't: the table is served from cluster a, but this app profile routes to b: give one that routes to a, or stop all servers and run perkv bigtable move'

const pause = (): Promise<void> => sleep(DEAD_MS + 2000)
const replicated = async (): Promise<void> => {}

function put({ database }: JoinedServer, key: string): Promise<unknown> {
  const op = { op: 'put', key: utf8(key), value: utf8('v') } as const
  return database.transact({ ops: [op], checks: [], maxRetries: 0, lockWaitMs: 0 })
}

async function raise(table: MemoryTable, change: Partial<FormatRecord>): Promise<void> {
  const found = await readFormat(table)
  expect(await changeFormat(table, found, { ...FIRST_FORMAT, ...found, ...change })).toBeDefined()
}

test('a table without the row has format 1, and gets the row once', async () => {
  const table = new MemoryTable()
  const made = await Promise.all([NEW, OLD, OLD].map((serving) => requireFit(table, serving)))
  const row = { ...FIRST_FORMAT, cluster: undefined, turn: 1 }
  expect(made).toEqual([row, row, row])
  expect(await readFormat(table)).toEqual(row)
})

test('a table that was made just now has the newest format', async () => {
  const table = new MemoryTable()
  await requireFit(table, NEW, true)
  expect(await readFormat(table)).toMatchObject(SECOND_FORMAT)
})

test('a damaged row is refused in one line', async () => {
  const sound = { ...FIRST_FORMAT, cluster: 'a', turn: 3 }
  expect(decodeFormat(encodeFormat(sound))).toEqual(sound)
  for (const bad of ['', '[]', '{"format":0,"program":"1","turn":1}', '{"format":1,"program":"a\\nb","turn":1}'])
    expect(() => decodeFormat(utf8(bad)), bad).toThrow('the record of the format is damaged')
  const table = new MemoryTable()
  table.put(Buffer.from('\0\0format'), [{ family: 'o', qualifier: Buffer.from('o'), value: Buffer.from('{}') }])
  const options = { servers: registryRowsOf(table), replicated, pause: async () => {} }
  const refused = expect.objectContaining({
    name: 'UnusableTable',
    message: 't: the record of the format is damaged: run perkv store check',
  })
  await expect(requireFit(table, OLD)).rejects.toEqual(refused)
  await expect(moveTable(table, { ...OLD, cluster: 'b' }, options)).rejects.toEqual(refused)
})

test('an older program refuses a newer table at its start, and writes nothing', async () => {
  const table = new MemoryTable()
  await requireFit(table, NEW, true)
  const before = { ...table.calls, read: expect.any(Number) }
  const start = new JoinedServers(table).start('old', OLD)
  await expect(start).rejects.toThrow(UnusableTable)
  await expect(start).rejects.toThrow(TOO_NEW)
  expect(table.calls).toEqual(before)
})

test('a running server of an older program ends when the format is raised; a newer one goes on', async () => {
  const table = new MemoryTable()
  await inLeaps(table, async () => {
    const servers = new JoinedServers(table)
    const [older, newer] = [await servers.start('old', OLD), await servers.start('new', NEW)]
    await put(older, 'k')
    await raise(table, SECOND_FORMAT)
    await sleep(3000)
    expect(older.ends).toEqual([TOO_NEW])
    expect(older.database.probe()).toBe(TOO_NEW)
    const refusal = { code: 'storage_unavailable', message: TOO_NEW }
    await expect(older.database.store.get({ key: utf8('k'), ts: 1 })).rejects.toMatchObject(refusal)
    await expect(older.database.store.system.write([{ name: 'pin/x', value: utf8('') }])).rejects.toMatchObject(refusal)
    expect(newer.ends).toEqual([])
    expect(newer.database.probe()).toBeUndefined()
    await older.close()
    await put(newer, 'k')
    await newer.close()
  })
})

test('a server that stood still while the format was raised neither reads nor writes afterwards', async () => {
  const table = new MemoryTable()
  await inLeaps(table, async () => {
    const older = await new JoinedServers(table).start('old', OLD)
    await raise(table, SECOND_FORMAT)
    const before = { ...table.calls, read: expect.any(Number) }
    const late = performance.now() + 4000
    // Its timers come late too: the request is the first that it does.
    const now = performance.now.bind(performance)
    performance.now = () => Math.max(now(), late)
    try {
      await expect(older.database.store.get({ key: utf8('k'), ts: 1 })).rejects.toThrow(TOO_NEW)
      await expect(put(older, 'k')).rejects.toThrow(TOO_NEW)
    } finally {
      performance.now = now
    }
    await older.close() // The rows of the oracle and of the registry are not touched either.
    expect(table.calls).toEqual(before)
  })
})

test('a rolling upgrade: new servers serve the old format until no old one is left', async () => {
  const table = new MemoryTable()
  await inLeaps(table, async () => {
    const servers = new JoinedServers(table)
    const rows = registryRowsOf(table)
    /** Whether the revision of `k` has a size, and the families of a pin that was removed. */
    const revisionAndPinOf = async ({ database }: JoinedServer) => {
      const { pin } = await database.createPin({ ttlMs: 60_000 })
      await database.removePin(pin)
      const [row] = await table.rows({ keys: [utf8('k')], columns: [{ family: 'v' }] })
      const [left] = await table.rows({
        keys: [rowKeyOfSystem(`pin/${pin}`)],
        columns: [{ family: 'o' }, { family: 'v' }],
      })
      const families = left?.cells.map(({ family }) => family) ?? []
      return { hasSize: hasSize(row?.cells[0]?.value), pin: families.join('') }
    }
    const upgrade = (): Promise<number> => upgradeTable(table, rows, NEW, pause)
    const older = await servers.start('old', OLD)
    const newer = await servers.start('new', NEW)
    expect(await readFormat(table)).toMatchObject(FIRST_FORMAT)
    await expect(upgrade()).rejects.toThrow(
      't: the table has servers that do not know format 2, and it would end them: first start 0.9.0 or later in place of http://old',
    )
    await older.close()
    await sleep(5000)
    await put(newer, 'k')
    expect(await revisionAndPinOf(newer)).toEqual({ hasSize: false, pin: '' }) // As older programs write.
    // A row that a killed server has left, of a program that does not say which formats it knows.
    await rows.swap('server/killed', undefined, utf8('{"url":"http://killed","oldest":1,"safe_point":0,"beat":1}'))
    expect(await upgrade()).toBe(1)
    expect(await readFormat(table)).toMatchObject(SECOND_FORMAT)
    expect(await upgrade()).toBe(2)
    await sleep(3000)
    await put(newer, 'k')
    expect(await revisionAndPinOf(newer)).toEqual({ hasSize: false, pin: '' }) // An older program may still be about to end.
    await sleep(3000)
    expect(newer.ends).toEqual([])
    await put(newer, 'k')
    expect(await revisionAndPinOf(newer)).toEqual({ hasSize: true, pin: 'ov' })
    await expect(servers.start('old', OLD)).rejects.toThrow(TOO_NEW)
    await expect(upgradeTable(table, rows, OLD, pause)).rejects.toThrow(TOO_NEW)
    await newer.close()
  })
})

test('the cluster of the first server that knows its own is that of all', async () => {
  const table = new MemoryTable()
  await requireFit(table, OLD)
  expect(await requireFit(table, { ...OLD, cluster: 'a' })).toMatchObject({ cluster: 'a' })
  expect(await requireFit(table, OLD)).toMatchObject({ cluster: 'a' }) // It may not ask for its own.
  await expect(requireFit(table, { ...OLD, cluster: 'b' })).rejects.toThrow(ELSEWHERE)
})

test('two servers that make the row on two clusters: one of them ends when the row of the other arrives', async () => {
  const table = new MemoryTable()
  await inLeaps(table, async () => {
    const server = await new JoinedServers(table).start('on-b', { ...OLD, cluster: 'b' })
    await raise(table, { cluster: 'a' })
    await sleep(3000)
    expect(server.ends).toEqual([ELSEWHERE])
    await server.close()
  })
})

test('servers move to another cluster while none runs, and once all is replicated', async () => {
  const table = new MemoryTable()
  await inLeaps(table, async () => {
    const servers = new JoinedServers(table)
    const rows = registryRowsOf(table)
    const [onA, onB] = [
      { ...OLD, cluster: 'a' },
      { ...OLD, cluster: 'b' },
    ]
    const server = await servers.start('on-a', onA)
    const move = (): Promise<string | undefined> => moveTable(table, onB, { servers: rows, replicated, pause })
    await expect(move()).rejects.toThrow('t: the table is moved only while nobody serves it: stop http://on-a')
    expect(server.ends).toEqual([])
    await server.close()
    const row = encodeServer({
      url: 'http://killed',
      oldest: 1,
      safePoint: 0,
      unreachedEpoch: 0,
      knowsTime: false,
      format: 1,
      beat: 1,
    })
    await rows.swap('server/killed', undefined, row)
    // Replication brings a change of a server that is thought to be dead.
    const late = async (): Promise<void> => {
      const beat = encodeServer({
        url: 'http://killed',
        oldest: 1,
        safePoint: 0,
        unreachedEpoch: 0,
        knowsTime: false,
        format: 1,
        beat: 2,
      })
      if ((await readFormat(table))?.cluster === 'a') await rows.swap('server/killed', row, beat)
    }
    let waits = 0
    const slow = async (): Promise<void> => void (++waits === 2 && (await late()))
    await expect(moveTable(table, onB, { servers: rows, replicated: slow, pause })).rejects.toThrow(
      'stop http://killed',
    )
    expect(await move()).toBe('a')
    expect(await move()).toBe('b')
    await expect(servers.start('on-a', onA)).rejects.toThrow(
      'is served from cluster b, but this app profile routes to a',
    )
    const moved = await servers.start('on-b', onB)
    expect(moved.database.probe()).toBeUndefined()
    await moved.close()
  })
})
