import { randomUUID } from 'node:crypto'
import { afterAll, expect, test } from 'vitest'
import { connect } from '../../src/client/index.js'
import { HttpTransaction, isLost, Refused, scanPairs } from '../anomalies/http-transaction.js'
import { Random } from '../anomalies/random.js'
import { report, settings } from '../anomalies/settings.js'
import { killAll } from '../process/server-process.js'
import { Cluster } from './cluster.js'
import { startEmulator } from './emulator/emulator.mjs'
import { LoadBalancer } from './load-balancer.js'

afterAll(killAll)

/** `kills`: how often each server is replaced. */
const { seed, kills: rounds } = settings({ seed: 1, txns: 0, kills: 1 })
const SERVERS = process.env['PERKV_TEST_LONG'] ? 3 : 2
const CLIENTS = 3
const KEYS = 20
/** Between two works of a client: a machine that is always busy starts no server soon. */
const PAUSE_MS = 20
/** Of one piece of work. Each is a reason that the server calls passing, or a connection that was cut. */
const TRIES_MAX = 50
/** Of a transaction whose server has gone: it is begun again. */
const GONE = new Set(['txn_not_found', 'txn_rolled_back'])

function mayBeRepeated(error: unknown): boolean {
  return isLost(error) || (error instanceof Refused && (error.problem['retryable'] === true || GONE.has(error.code)))
}

/** Repeats what may be repeated. */
async function persistently<T>(work: () => Promise<T>, isPassing = mayBeRepeated): Promise<T> {
  for (let tries = 1; ; tries++)
    try {
      return await work()
    } catch (error) {
      if (!isPassing(error) || tries === TRIES_MAX) throw error
      await new Promise((resolve) => setTimeout(resolve, 5 + Math.random() * 20 * tries))
    }
}

/** Repeats a commit that a server has passed on to one that does not answer: it may be done. */
function commit(txn: HttpTransaction): Promise<unknown> {
  return persistently(
    () => txn.commit(),
    (error) => error instanceof Refused && error.code === 'storage_unavailable',
  )
}

async function increment(url: string, keys: readonly string[], name: string): Promise<void> {
  const ops = keys.map((key) => ({ op: 'increment', key, by: 1 }))
  const answer = await fetch(`${url}/v1/txn`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'idempotency-key': name },
    body: JSON.stringify({ ops }),
  })
  const problem = (await answer.json()) as Record<string, unknown>
  if (!answer.ok) throw new Refused(answer.status, String(problem['code']), problem)
}

/** The servers are replaced one after another, as by a deployment, while clients of each kind go on. */
test('a rolling restart fails no commit: each is done once, if need be at the next try', async () => {
  const random = new Random(seed)
  const emulator = await startEmulator({})
  const cluster = await Cluster.start(emulator.host, SERVERS, random.fork())
  const balancer = await LoadBalancer.start(() => cluster.urls)
  const { url } = balancer
  const db = connect(url)
  const counts = { oneShot: 0, library: 0, interactive: 0 }
  const twoOf = (kind: string): string[] => {
    const first = random.below(KEYS)
    return [first, (first + 1 + random.below(KEYS - 1)) % KEYS].map((n) => `${kind}/${n}`)
  }
  let isOver = false
  const works: Record<keyof typeof counts, () => Promise<unknown>> = {
    oneShot: () => {
      const [keys, name] = [twoOf('oneShot'), randomUUID()]
      return persistently(() => increment(url, keys, name))
    },
    library: () => {
      const keys = twoOf('library')
      return db.transaction(async (txn) => {
        for (const key of keys) await txn.increment(key, 1)
      })
    },
    interactive: () => {
      const keys = twoOf('interactive').toSorted()
      // Each try writes its own name, so that one whose commit was answered to nobody counts once.
      const name = `done/${randomUUID()}`
      return persistently(async () => {
        const txn = await HttpTransaction.begin(url, { mode: 'pessimistic', isolation: 'snapshot' })
        if ((await txn.get(name)) !== undefined) return txn.rollback()
        for (const key of keys) await txn.put(key, String(Number((await txn.getForUpdate(key)) ?? 0) + 1))
        await txn.put(name, '')
        await commit(txn)
      })
    },
  }
  const client = async (kind: keyof typeof counts): Promise<void> => {
    while (!isOver) {
      await works[kind]()
      counts[kind]++
      await new Promise((resolve) => setTimeout(resolve, PAUSE_MS))
    }
  }
  const replace = async (): Promise<void> => {
    try {
      for (let round = 0; round < rounds; round++)
        for (let at = 0; at < SERVERS; at++) {
          const before = { ...counts }
          await cluster.replace(at)
          // All kinds have committed beside the new server before the next one goes.
          while (!Object.entries(counts).every(([kind, n]) => n > before[kind as keyof typeof counts] + 2))
            await new Promise((resolve) => setTimeout(resolve, 10))
        }
    } finally {
      isOver = true
    }
  }
  try {
    const kinds = Object.keys(counts) as (keyof typeof counts)[]
    await Promise.all([replace(), ...kinds.flatMap((kind) => Array.from({ length: CLIENTS }, () => client(kind)))])
    report({ test: 'rolling-restart', seed, replaced: rounds * SERVERS, ...counts })
    for (const kind of kinds) {
      const values = [...(await scanPairs(`${url}/v1/kv`, { prefix: `${kind}/` })).values()]
      expect([kind, values.reduce((sum, value) => sum + Number(value), 0)]).toEqual([kind, 2 * counts[kind]])
    }
  } finally {
    await db.close()
    await balancer.stop()
    await cluster.end()
    await emulator.stop()
  }
}, 300_000)
