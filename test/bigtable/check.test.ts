import { afterAll, expect, test } from 'vitest'
import { openTable } from '../../src/store/table/bigtable/google-client.js'
import { printTableAddress } from '../../src/store/table/bigtable/table-address.js'
import { makeTable } from '../../src/store/table/bigtable/table-admin.js'
import { REVISION } from '../../src/store/table/layout/layout.js'
import { post } from '../anomalies/http-transaction.js'
import { type Finished, killAll, runCli, type ServerProcess, startProcess } from '../process/server-process.js'
import { makeTableOf, ownAddress } from './own-table.js'
import { plant } from './plant.js'

afterAll(killAll)

const env = (): Record<string, string> => ({ BIGTABLE_EMULATOR_HOST: process.env['BIGTABLE_EMULATOR_HOST'] as string })
const check = (address: string, ...flags: string[]): Promise<Finished> =>
  runCli(['bigtable', 'check', address, ...flags], env())

/** More than a page of rows, with several versions, long values and outcomes. */
async function fill({ url }: ServerProcess): Promise<void> {
  const keys = Array.from({ length: 600 }, (_, i) => `key ${i}`)
  for (const [value, length] of [
    ['short', 600],
    ['long '.repeat(2000), 100],
  ] as const)
    for (let from = 0; from < length; from += 100)
      await post(`${url}/v1/txn`, {
        ops: keys.slice(from, from + 100).map((key, i) => ({ op: 'put', key, value: i % 10 === 0 ? value : 'v' })),
      })
  for (let i = 0; i < 5; i++) {
    const headers = { 'idempotency-key': `"${i}"` }
    expect((await fetch(`${url}/v1/kv/once${i}`, { method: 'PUT', body: 'v', headers })).status).toBe(200)
  }
}

test('a table that is written is sound; what is damaged is said, and changes nothing', async () => {
  const address = ownAddress()
  const text = printTableAddress(address)
  expect(await runCli(['bigtable', 'init', text], env())).toMatchObject({ code: 0 })
  expect(await check(text)).toMatchObject({
    code: 0,
    stdout: expect.stringContaining('format    2\nrows      0, and 1 of the server'),
  })
  const server = await startProcess('-', ['--store', text, '--log-level', 'error'], undefined, env())
  await fill(server)
  let isOver = false
  const writing = (async () => {
    for (let i = 0; !isOver; i++)
      await post(`${server.url}/v1/txn`, { ops: ['a', 'b', 'c'].map((key) => ({ op: 'put', key, value: `${i}` })) })
  })()
  const beside = await check(text)
  isOver = true
  await writing
  expect(beside).toMatchObject({ code: 0, stdout: expect.stringMatching(/\nsound\n$/), stderr: '' })
  await server.stop('SIGTERM')
  const { code, stdout } = await check(text, '--json')
  expect(code).toBe(0)
  const sound = JSON.parse(stdout) as { table: { rows: number; versions: number; bytes: number } }
  expect(sound).toMatchObject({
    ...{ sound: true, problems: 0, warnings: 0, findings: [] },
    table: { format: 2, rows: 608, locks: 0 },
  })
  expect(sound.table.versions).toBeGreaterThan(700)
  expect(sound.table.bytes).toBeGreaterThan(10 * 10_000)

  const table = await openTable(address)
  await plant(table, Buffer.from('key 7'), [{ family: 'w', qualifier: Buffer.from('?'), value: Buffer.from('?') }])
  await plant(table, Buffer.from('key 8'), [{ family: 'v', qualifier: REVISION, value: undefined }])
  await table.close()
  const damaged = await check(text)
  expect(damaged.code).toBe(1)
  expect(damaged.stdout).toContain(
    'damaged_record: the cell w:? of "key 7": the name of a write record is no timestamp\n',
  )
  expect(damaged.stdout).toContain('missing_revision: "key 8" has no revision, so changes of it are not guarded\n')
  expect(damaged.stdout).toMatch(/\ndamaged: 2 problems\n$/)
  const few = await check(text, '--json', '--problems-max', '1')
  expect(JSON.parse(few.stdout)).toMatchObject({
    sound: false,
    problems: 2,
    findings: [
      { kind: 'damaged_record', severity: 'problem', key: { base64: Buffer.from('key 7').toString('base64') } },
    ],
  })
}, 180_000)

test('settings that lose data are found, and families that no server knows', async () => {
  const address = ownAddress()
  const day = { maxAge: { seconds: 86_400 } }
  await makeTableOf(address, {
    l: undefined,
    w: day,
    r: undefined,
    d: undefined,
    v: undefined,
    o: undefined,
    other: undefined,
  })
  const table = await openTable(address)
  await plant(table, Buffer.from('k'), [
    { family: 'other' as 'w', qualifier: Buffer.from('x'), value: Buffer.from('1') },
    { family: 'v', qualifier: REVISION, value: Buffer.alloc(16) },
  ])
  await table.close()
  const { code, stdout } = await check(printTableAddress(address))
  expect(code).toBe(1)
  expect(stdout).toContain('bad_settings: the garbage collection of column family w has a maximum age')
  expect(stdout).toContain('unknown_column: "k" has a cell other:x, which no server writes')
  const partial = ownAddress()
  await makeTableOf(partial, { l: undefined, w: undefined })
  expect((await check(printTableAddress(partial))).stdout).toContain('bad_settings: the table has no column family v')
})

test('what cannot be checked is said in one line', async () => {
  const missing = printTableAddress(ownAddress())
  await makeTable(ownAddress())
  for (const [args, code, why] of [
    [['check', missing], 1, `${missing}: there is no such table`],
    [['check'], 2, 'ADDRESS is missing'],
    [['mend', missing], 2, '"mend" is none of init, check, accept, upgrade, move'],
    [['check', 'bigtable://x'], 1, 'is no address of a table'],
  ] as const) {
    const { stdout, stderr, ...finished } = await runCli(['bigtable', ...args], env())
    expect([finished.code, stderr.trimEnd().split('\n').length, stdout]).toEqual([code, 1, ''])
    expect(stderr).toContain(why)
  }
})
