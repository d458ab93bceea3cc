import { afterAll, afterEach, beforeEach, expect, test } from 'vitest'
import { Random } from '../anomalies/random.js'
import { report, settings } from '../anomalies/settings.js'
import { killAll } from '../process/server-process.js'
import { Cluster } from './cluster.js'
import { startEmulator } from './emulator/emulator.mjs'

const { seed, kills } = settings({ seed: 1, txns: 0, kills: 2 })
const SERVERS = 3
const ROUNDS = 10
/** Longer than the test. */
const LOCK_WAIT_MS = 600_000

interface Answer {
  readonly status: number
  readonly body: { readonly code?: string; readonly lock_ts?: number; readonly wait_chain?: readonly { txn: number }[] }
}

async function send(method: string, url: string, body?: string): Promise<Answer> {
  const answer = await fetch(url, { method, ...(body !== undefined && { body }) })
  const text = await answer.text()
  return { status: answer.status, body: text === '' ? {} : JSON.parse(text) }
}

/** An interactive transaction on one server. */
class Txn {
  private constructor(
    readonly url: string,
    readonly startTs: number,
  ) {}

  static async begin(server: string): Promise<Txn> {
    const answer = await fetch(`${server}/v1/txn/begin`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ mode: 'pessimistic', ttl_ms: 60_000 }),
    })
    const { txn, start_ts } = (await answer.json()) as { txn: string; start_ts: number }
    return new Txn(`${server}/v1/txn/${txn}`, start_ts)
  }

  put(key: string): Promise<Answer> {
    return send('PUT', `${this.url}/kv/${key}?lock_wait_ms=${LOCK_WAIT_MS}`, 'value')
  }
  end(how: 'commit' | 'rollback'): Promise<Answer> {
    return send('POST', `${this.url}/${how}`)
  }
}

/** Requests of a server that wait for locks. */
async function waitersOf(server: string): Promise<number> {
  const text = await (await fetch(`${server}/metrics`)).text()
  return Number(/^perkv_lock_waiters (\d+)/m.exec(text)?.[1])
}

let cluster: Cluster
let stop: () => Promise<void>
beforeEach(async () => {
  const emulator = await startEmulator()
  cluster = await Cluster.start(emulator.host, SERVERS, new Random(seed))
  stop = async () => {
    await cluster.end()
    await emulator.stop()
  }
})
afterEach(() => stop())
afterAll(killAll)

async function leader(): Promise<number> {
  for (;;) {
    const at = await cluster.leader()
    if (at !== undefined) return at
  }
}

/**
 * Transactions on these servers that each hold a key, and ask for the next one's.
 * @param meanwhile runs when all wait but the last, which closes the circle.
 * @returns how many were refused. All others commit.
 */
async function circle(name: string, servers: readonly string[], meanwhile = async () => {}): Promise<number> {
  const txns = await Promise.all(servers.map((server) => Txn.begin(server)))
  const count = txns.length
  const keyOf = (i: number): string => `${name}-${i % count}`
  for (const [i, txn] of txns.entries()) expect(await txn.put(keyOf(i))).toMatchObject({ status: 200 })
  let refused = 0
  let isWaiting = count
  const finish = async (txn: Txn, i: number): Promise<void> => {
    const { status, body } = await txn.put(keyOf(i + 1))
    if (status === 200) {
      isWaiting--
      expect(await txn.end('commit')).toMatchObject({ status: 200 })
      return
    }
    expect({ status, code: body.code }).toEqual({ status: 409, code: 'deadlock' })
    if (refused === 0) expect(isWaiting).toBe(count) // Nobody had to give up before.
    refused++
    expect(body.lock_ts).toBe(txns[(i + 1) % count]?.startTs)
    expect(body.wait_chain?.map(({ txn: each }) => each)).toEqual(
      txns.map((_, step) => txns[(i + 1 + step) % count]?.startTs),
    )
    expect(await txn.end('rollback')).toMatchObject({ status: 200 })
  }
  const first = txns.slice(0, -1).map(finish)
  for (const server of new Set(servers.slice(0, -1))) while ((await waitersOf(server)) === 0);
  await meanwhile()
  await Promise.all([...first, finish(txns.at(-1) as Txn, count - 1)])
  return refused
}

test('transactions that wait in a circle over servers: one is refused, and the others commit', async () => {
  const { urls } = cluster
  const random = new Random(seed)
  let refused = 0
  for (let round = 0; round < ROUNDS; round++) {
    const servers = Array.from({ length: 2 + (round % 3) }, (_, i) => urls[(round + i) % SERVERS] as string)
    refused += await circle(`round${random.below(1e9)}`, servers)
  }
  expect(refused).toBe(ROUNDS)
}, 120_000)

test('a circle ends as well when the server that knows who waits is killed, or stopped, before it closes', {
  tags: ['long'],
  timeout: 300_000,
}, async () => {
  const refused: number[] = []
  for (let i = 0; i < kills; i++)
    for (const how of ['kill', 'stop'] as const) {
      const at = await leader()
      const others = cluster.urls.filter((_, each) => each !== at)
      let ending: Promise<void> = Promise.resolve()
      refused.push(
        await circle(`${how}${i}`, others, async () => {
          if (how === 'kill') await cluster.kill(at)
          else ending = cluster.pause(at, 5000)
        }),
      )
      await ending
      if (how === 'kill') await cluster.restart(at)
    }
  report({ test: 'cluster-deadlocks', seed, refused, kills: cluster.kills, pauses: cluster.pauses })
  // One each, but for a leader that has found a circle and has changed before its answer came.
  expect(refused.every((each) => each === 1 || each === 2)).toBe(true)
})
