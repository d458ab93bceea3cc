import { afterAll, expect, test } from 'vitest'
import { openTable } from '../../src/store/table/bigtable/google-client.js'
import { printTableAddress, type TableAddress } from '../../src/store/table/bigtable/table-address.js'
import { FAMILIES } from '../../src/store/table/bigtable/table-admin.js'
import { post } from '../anomalies/http-transaction.js'
import { Random } from '../anomalies/random.js'
import { type Finished, killAll, runCli } from '../process/server-process.js'
import { Cluster } from './cluster.js'
import { makeTableOf, ownAddress } from './own-table.js'
import { plant } from './plant.js'

afterAll(killAll)

const SERVERS = 3
const ROUNDS = process.env['PERKV_TEST_LONG'] ? 3 : 1
const KEYS = 30
const PAGE = 10
const EVERYTHING = { start: Buffer.alloc(0), end: undefined }

const host = (): string => process.env['BIGTABLE_EMULATOR_HOST'] as string

function run(...args: string[]): Promise<Finished> {
  return runCli(args, { BIGTABLE_EMULATOR_HOST: host() })
}

/** Every cell of the table, as text. */
async function cellsOf(address: TableAddress): Promise<string[]> {
  const table = await openTable(address)
  try {
    const rows = await table.rows({ ranges: [EVERYTHING], columns: FAMILIES.map((family) => ({ family })) })
    return rows.flatMap(({ key, cells }) =>
      cells.map((cell) => [key, cell.family, cell.qualifier, cell.value].map((part) => part.toString('hex')).join(' ')),
    )
  } finally {
    await table.close()
  }
}

interface Page {
  readonly pairs: readonly { readonly key: string; readonly value: string }[]
  readonly ts: number
  readonly cursor?: string
}

async function pageOf(server: string, query: Record<string, string>): Promise<Page> {
  const answer = await fetch(`${server}/v1/kv?${new URLSearchParams(query)}`)
  expect(answer.status).toBe(200)
  return (await answer.json()) as Page
}

test('servers that start together on a fresh table have one secret: a scan goes on at each of them', async () => {
  for (let round = 0; round < ROUNDS; round++) {
    const cluster = await Cluster.start(host(), SERVERS, new Random(round))
    try {
      const [first, ...others] = cluster.urls as [string, ...string[]]
      const pairs = Array.from({ length: KEYS }, (_, i) => ({ key: `k${String(i).padStart(2, '0')}`, value: `${i}` }))
      await post(`${first}/v1/txn`, { ops: pairs.map((pair) => ({ op: 'put', ...pair })) })
      let page = await pageOf(first, { prefix: 'k', limit: String(PAGE) })
      const found = [...page.pairs]
      const { ts } = page
      // The pages are of the snapshot of the first.
      await post(`${others.at(-1)}/v1/txn`, { ops: pairs.map(({ key }) => ({ op: 'put', key, value: 'later' })) })
      for (const server of others) {
        page = await pageOf(server, { cursor: page.cursor as string })
        expect(page.ts).toBe(ts)
        found.push(...page.pairs)
      }
      expect(found.map(({ key, value }) => ({ key, value }))).toEqual(pairs)
      expect(page.cursor).toBeUndefined()
    } finally {
      await cluster.end()
    }
  }
})

test('servers that start together agree on who hands out the timestamps', async () => {
  const cluster = await Cluster.start(host(), SERVERS, new Random(1))
  try {
    // Each of them needs one, from whoever leads.
    await Promise.all(cluster.urls.map((url) => post(`${url}/v1/percolator/tso`)))
    const roles = await cluster.roles()
    expect(roles.filter((role) => role?.role === 'leader')).toHaveLength(1)
    const leader = roles.findIndex((role) => role?.role === 'leader')
    for (const role of roles) expect(role).toMatchObject({ leader: cluster.urls[leader], epoch: roles[leader]?.epoch })
  } finally {
    await cluster.end()
  }
})

test('a second init changes nothing, also beside what servers have written', async () => {
  const address = ownAddress()
  const text = printTableAddress(address)
  expect(await run('bigtable', 'init', text)).toMatchObject({
    code: 0,
    stdout: expect.stringContaining(`made the table of ${text}\n`),
  })
  const table = await openTable(address)
  await plant(table, Buffer.from('k'), [{ family: 'w', qualifier: Buffer.from('a'), value: Buffer.from('1') }])
  await table.close()
  const before = await cellsOf(address)
  expect(before).toHaveLength(2) // With the row of the format.
  expect(await run('bigtable', 'init', text)).toMatchObject({
    code: 0,
    stdout: expect.stringContaining(`${text} is there already, and nothing was changed\n`),
  })
  expect(await cellsOf(address)).toEqual(before)
})

test('a server is refused in one line where the table is missing, or removes what is old', async () => {
  const [missing, aging] = [ownAddress(), ownAddress()]
  await makeTableOf(aging, Object.fromEntries(FAMILIES.map((family) => [family, { maxAge: { seconds: 86_400 } }])))
  const wrong = [
    [missing, 'there is no such table'],
    [aging, 'the garbage collection of column family l, w, r, d, v, o has a maximum age'],
  ] as const
  for (const [address, why] of wrong) {
    const { code, stdout, stderr } = await run('serve', '--port', '0', '--store', printTableAddress(address))
    expect(code).not.toBe(0)
    expect(stdout).toBe('')
    expect(stderr.trimEnd().split('\n')).toHaveLength(1)
    expect(stderr).toContain(`${printTableAddress(address)}: ${why}`)
  }
})
