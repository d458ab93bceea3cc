import { expect } from 'vitest'
import { connect, type Db } from '../../src/client/index.js'
import type { Random } from '../anomalies/random.js'
import { report } from '../anomalies/settings.js'
import type { Cluster } from './cluster.js'
import type { HistoryOptions } from './cluster-history.js'

const WRITERS = 3
const DOCS = 12
const TRIES_MAX = 150
const WORDS = ['to', 'be', 'or', 'not', 'that', 'is', 'the', 'question']

function wordsOf(text: string): string[] {
  return text.split(' ').filter((word) => word !== '')
}

/** Tries until the server is there again. */
async function surely<T>(body: () => Promise<T>): Promise<T> {
  for (let tries = 0; ; tries++) {
    try {
      return await body()
    } catch (error) {
      if (tries === TRIES_MAX) throw error
      await new Promise((wake) => setTimeout(wake, 200))
    }
  }
}

/** How often each word stands in all documents. */
function counted(texts: readonly string[]): Record<string, number> {
  const counts: Record<string, number> = {}
  for (const text of texts) for (const word of wordsOf(text)) counts[word] = (counts[word] ?? 0) + 1
  return counts
}

async function valuesBelow(db: Db, prefix: string): Promise<ReadonlyMap<string, string>> {
  const found = new Map<string, string>()
  for await (const { key, value } of db.scan({ prefix })) found.set(key.slice(prefix.length), value)
  return found
}

/** An index of words by workers at a cluster whose servers are killed and stopped. Ends it. */
export async function clusterObservers(
  cluster: Cluster,
  { seed, txns, kills, random, disturb = async () => {} }: HistoryOptions,
): Promise<void> {
  const dbs = cluster.urls.map((url) => connect(url, { lockWaitMs: 1000, retryMs: 120_000, connectTimeoutMs: 120_000 }))
  const stop = new AbortController()
  let runs = 0
  let writes = 0
  const working = dbs.map((db) =>
    db.observe(
      'words',
      { prefix: 'doc/' },
      async (txn, { key, value }) => {
        const old = `words-of/${key}`
        const before = wordsOf((await txn.get(old)) ?? '')
        const after = wordsOf(value ?? '')
        const changes = counted([after.join(' ')])
        for (const word of before) changes[word] = (changes[word] ?? 0) - 1
        for (const [word, change] of Object.entries(changes))
          if (change !== 0) await txn.put(`count/${word}`, `${Number((await txn.get(`count/${word}`)) ?? 0) + change}`)
        await txn.put(old, after.join(' '))
        await txn.put('runs', `${Number((await txn.get('runs')) ?? 0) + 1}`)
        runs++
      },
      {
        ...{ backoffMs: 20, backoffMaxMs: 200, maxAttempts: 0 },
        concurrency: 3,
        leaseMs: 3000,
        signal: stop.signal,
        onError: () => {},
      },
    ),
  )
  let isOver = false
  const write = async (db: Db, own: Random): Promise<void> => {
    for (let i = 0; i < txns / WRITERS; i++) {
      const text = Array.from({ length: own.below(6) }, () => own.pick(WORDS)).join(' ')
      const key = `doc/${own.below(DOCS)}`
      const isDelete = own.below(8) === 0
      await surely(() => {
        writes++ // One whose answer was lost may be two.
        return isDelete ? db.delete(key) : db.put(key, text)
      })
      await new Promise((wake) => setTimeout(wake, own.below(60)))
    }
  }
  const counts = () => ({ seed, kills: cluster.kills, pauses: cluster.pauses, runs, writes })
  try {
    await surely(() => (dbs[0] as Db).observers.get('words'))
    const writing = Promise.all(dbs.map((db) => write(db, random.fork()))).then(() => {
      isOver = true
    })
    await Promise.all([writing, cluster.disturb(kills, random, () => isOver), disturb(() => isOver)])
    await cluster.isUp()
    const db = dbs[0] as Db
    await expect
      .poll(
        async () => {
          const docs = await surely(() => valuesBelow(db, 'doc/'))
          const index = await surely(() => valuesBelow(db, 'count/'))
          const positive = [...index].filter(([, count]) => count !== '0').map(([word, count]) => [word, Number(count)])
          return { index: Object.fromEntries(positive), of: counted([...docs.values()]) }
        },
        { timeout: 60_000, interval: 500 },
      )
      .toSatisfy(({ index, of }) => JSON.stringify(sorted(index)) === JSON.stringify(sorted(of)))
    report({ test: 'cluster-observers', ...counts() })
    expect(cluster.kills, JSON.stringify(counts())).toBeGreaterThan(0)
    const committed = Number(await surely(() => db.get('runs')))
    expect(committed, JSON.stringify(counts())).toBeGreaterThan(0)
    expect(committed, JSON.stringify(counts())).toBeLessThanOrEqual(writes)
    stop.abort()
    await Promise.all(working)
    for (const each of dbs) await each.close()
  } catch (error) {
    throw new Error(JSON.stringify(counts()), { cause: error })
  } finally {
    stop.abort()
    await cluster.end()
  }
}

function sorted(counts: Record<string, number>): [string, number][] {
  return Object.entries(counts).sort(([a], [b]) => (a < b ? -1 : 1))
}
