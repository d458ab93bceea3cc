import { type ChildProcess, spawn } from 'node:child_process'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { afterAll, expect, test } from 'vitest'
import { MortalServer } from './mortal-server.js'
import { ENV, killAll, withTempDir } from './server-process.js'

const HOLDER = fileURLToPath(new URL('./lease-holder.mjs', import.meta.url))
const KILLS = Number(process.env['PERKV_TEST_KILLS'] ?? 2)

const children: ChildProcess[] = []
afterAll(() => {
  for (const child of children) child.kill('SIGKILL')
  killAll()
})

/** A process that holds the lease whenever it can, and works under it. */
class Holder {
  readonly #child: ChildProcess
  readonly held: number[] = []
  readonly lost: number[] = []
  #changed = (): void => {}

  constructor(url: string, name: string, ttlMs: number) {
    const child = spawn(process.execPath, [HOLDER, url, name, `${ttlMs}`], {
      env: ENV,
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    children.push(child)
    this.#child = child
    createInterface({ input: child.stdout }).on('line', (line) => {
      const [what, fence] = line.split(' ')
      if (what === 'holds') this.held.push(Number(fence))
      else this.lost.push(Number(fence))
      this.#changed()
    })
  }

  async until(isDone: () => boolean): Promise<void> {
    while (!isDone())
      await new Promise<void>((resolve) => {
        this.#changed = resolve
      })
  }

  signal(signal: NodeJS.Signals): void {
    this.#child.kill(signal)
  }
}

async function readKey(server: MortalServer, key: string): Promise<string> {
  return (await fetch(`${server.url}/v1/kv/${key}`)).text()
}

/** Until the work under this fence has begun. */
async function working(server: MortalServer, fence: number | undefined): Promise<void> {
  await expect.poll(() => readKey(server, 'work')).toBe(`${fence}`)
}

/** The fences under which the versions of `work` were committed, in the order of their commit_ts. */
async function fencesOf(server: MortalServer): Promise<number[]> {
  const answer = await fetch(`${server.url}/v1/percolator/mvcc_get_by_key`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: '{"key":"work"}',
  })
  const { writes } = (await answer.json()) as { writes: { commit_ts: number; short_value: string }[] }
  for (const { commit_ts, short_value } of writes) expect(commit_ts).toBeGreaterThan(Number(short_value))
  return writes.map(({ short_value }) => Number(short_value)).reverse()
}

function expectInOrder(fences: readonly number[]): void {
  expect(fences).toEqual([...fences].sort((a, b) => a - b))
}

test('a holder that is stopped for longer than its TTL commits nothing after another was granted the lease', () =>
  withTempDir(async (data) => {
    const server = await MortalServer.start(data)
    const [first, second] = [new Holder(server.url, 'first', 500), new Holder(server.url, 'second', 500)]
    const all = [first, second]
    for (let round = 0; round < 3; round++) {
      const holder = await Promise.race(
        all.map(async (each) => {
          await each.until(() => each.held.length > each.lost.length)
          return each
        }),
      )
      const other = holder === first ? second : first
      const [fence, before] = [holder.held.at(-1), other.held.length]
      await working(server, fence)
      holder.signal('SIGSTOP')
      await other.until(() => other.held.length > before)
      await working(server, other.held.at(-1))
      holder.signal('SIGCONT')
      await holder.until(() => holder.lost.at(-1) === fence)
      const fences = await fencesOf(server)
      expectInOrder(fences)
      expect(new Set(fences)).toContain(fence)
      expect(Math.max(...fences)).toBe(other.held.at(-1))
    }
    await server.end()
  }))

test('no holder loses its lease by a kill of the server', () =>
  withTempDir(async (data) => {
    const server = await MortalServer.start(data)
    const holder = new Holder(server.url, 'holder', 3000)
    await holder.until(() => holder.held.length > 0)
    const others = [1, 2].map((i) => new Holder(server.url, `other${i}`, 3000))
    const [fence] = holder.held
    for (let kill = 0; kill < KILLS; kill++) {
      await working(server, fence)
      await server.restart()
      const lease = await (await fetch(`${server.url}/v1/leases/leader`)).json()
      expect(lease).toMatchObject({ holder: 'holder', fence })
    }
    const versions = (await fencesOf(server)).length
    await expect.poll(async () => (await fencesOf(server)).length).toBeGreaterThan(versions)
    expect(new Set(await fencesOf(server))).toEqual(new Set([fence]))
    expect(holder.lost).toEqual([])
    expect(others.flatMap(({ held }) => held)).toEqual([])
    // It dies with the server: another one follows, later than without the kill, but it does.
    holder.signal('SIGKILL')
    await server.restart()
    await Promise.race(others.map((other) => other.until(() => other.held.length > 0)))
    expectInOrder(await fencesOf(server))
    await server.end()
  }))
