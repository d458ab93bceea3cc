import { expect } from 'vitest'
import { Bank } from '../anomalies/bank.js'
import { HttpTransaction, scanPairs } from '../anomalies/http-transaction.js'
import { report } from '../anomalies/settings.js'
import { ask, pause, surely } from './ask.js'
import type { Cluster } from './cluster.js'
import type { HistoryOptions } from './cluster-history.js'
import {
  APPLIED,
  appliedIn,
  CONSUMER,
  consume,
  copy,
  follow,
  isApplied,
  type Page,
  type Pairs,
  poll,
  Reading,
  type Txn,
} from './feed-readers.js'
import { FeedWriters, REMOVED, type Written } from './feed-writers.js'

/** Before a release more is written at once. */
const IS_LONG = process.env['PERKV_TEST_LONG'] !== undefined
const WRITERS = IS_LONG ? 5 : 3

const isRemoval = ({ changes }: Txn): boolean => changes[0]?.op === 'delete_range'

/** Up to `end`, less what removals behind it may have taken before it was told. */
function standing(txns: readonly Txn[], end: number): Txn[] {
  const removed = txns.findLast(isRemoval)?.commit_ts ?? 0
  const left = txns
    .filter(({ commit_ts }) => commit_ts <= end)
    .map(({ changes, ...txn }) => ({
      ...txn,
      changes: changes.filter(
        ({ key, op }) => op === 'delete_range' || txn.commit_ts > removed || !key.startsWith(REMOVED),
      ),
    }))
  return left.filter(({ changes }) => changes.length > 0)
}

/** The name of a transaction, and the keys that it has written; undefined: of none of the writers. */
function writtenBy({ changes }: Txn): Written | undefined {
  const [own, another] = changes.filter(({ key, op }) => op === 'put' && /^txn\/|\/ledger\//.test(key))
  if (own?.value === undefined) return undefined
  expect(another).toBeUndefined()
  if (own.key.startsWith('txn/')) return JSON.parse(own.value) as Written
  const [from = '', to = ''] = own.value.split('>')
  return { name: own.key, keys: [from, to, own.key] }
}

/** In order, each once, and whole. @returns commit_ts by name. */
function checkTxns(txns: readonly Txn[]): Map<string, number> {
  const found = new Map<string, number>()
  const removed = txns.findLast(isRemoval)?.commit_ts ?? 0
  for (const [i, txn] of txns.entries()) {
    const { commit_ts, start_ts, changes } = txn
    const before = txns[i - 1]
    const isLater =
      before === undefined ||
      commit_ts > before.commit_ts ||
      (commit_ts === before.commit_ts && start_ts > before.start_ts)
    expect(isLater, `${JSON.stringify(txn)} after ${JSON.stringify(before)}`).toBe(true)
    const written = writtenBy(txn)
    if (written === undefined) {
      const isAlone = changes.every(({ op }) => op === 'expire') || isRemoval(txn) || isApplied(txn)
      expect(isAlone, JSON.stringify(txn)).toBe(true)
      continue
    }
    const { name, keys } = written
    const left = keys.filter((key) => commit_ts > removed || !key.startsWith(REMOVED))
    expect(changes.map(({ key }) => key).sort(), JSON.stringify(txn)).toEqual(left.sort())
    expect(found.has(name), `${JSON.stringify(txn)} comes twice`).toBe(false)
    found.set(name, commit_ts)
  }
  return found
}

/** The records of each row are its changes in the feed. */
async function checkRecords(cluster: Cluster, txns: readonly Txn[], since: number, end: number): Promise<void> {
  const removed = txns.findLast(isRemoval)?.commit_ts ?? since
  const told = new Map<string, [string, number, number][]>()
  for (const { commit_ts, start_ts, changes } of txns)
    for (const { op, key } of changes)
      if (op === 'put' || op === 'delete') told.set(key, [...(told.get(key) ?? []), [op, start_ts, commit_ts]])
  for (const [key, all] of told) {
    const from = key.startsWith(REMOVED) ? removed : since
    const { writes } = await surely(() =>
      ask<{ writes: { type: string; start_ts: number; commit_ts: number }[] }>(
        `${cluster.url}/v1/percolator/mvcc_get_by_key`,
        { key },
      ),
    )
    const records = writes
      .filter(({ type, commit_ts }) => /put|delete/.test(type) && commit_ts > from && commit_ts <= end)
      .map(({ type, start_ts, commit_ts }) => [type, start_ts, commit_ts])
    expect([key, records.reverse()]).toEqual([key, all])
  }
}

async function newTs(cluster: Cluster): Promise<number> {
  return (await surely(() => ask<{ ts: number }>(`${cluster.url}/v1/percolator/tso`, {}))).ts
}

/**
 * Readers of all that is written to a cluster whose servers are killed, and stopped until
 * their logs are ended. Ends it.
 *
 * While it collects no reader but the consumer holds back what it has not read.
 */
export async function clusterFeed(
  cluster: Cluster,
  { seed, kills, random, isCollecting = false, disturb = async () => {} }: HistoryOptions,
): Promise<void> {
  const servers = cluster.urls.length
  const writers = new FeedWriters(cluster, random, isCollecting ? 50 : IS_LONG ? 150 : 300)
  let stopped: number | undefined
  const awake = {
    get url(): string {
      return random.pick(cluster.urls.filter((_, i) => i !== stopped))
    },
    isUp: () => cluster.isUp(),
  }
  const bank = new Bank(awake, { seed, clients: 3, auditors: 0, mayFail: true })
  const [polled, followed, copied] = [new Reading(), new Reading(), new Reading()]
  const hangUp = new AbortController()
  let isOver = false
  let end = Number.POSITIVE_INFINITY
  const counts = () => ({
    ...{ seed, kills: cluster.kills, pauses: cluster.pauses, committed: writers.committed.size },
    ...{ at: writers.at, removals: writers.removals, bank: bank.counts, told: polled.txns.length },
  })
  const passed = (readings: readonly Reading[], ts: number): Promise<void> =>
    expect
      .poll(() => Math.min(...readings.map(({ resolved }) => resolved)), { timeout: 120_000, interval: 100 })
      .toBeGreaterThan(ts)
  try {
    await bank.open()
    const slowly = { signal: AbortSignal.timeout(60_000) }
    const { next_ts: since } = await surely(() => ask<Page>(`${cluster.url}/v1/changes`, undefined, slowly))
    await surely(() =>
      ask(`${cluster.url}/v1/consumers/${CONSUMER}`, { start: 'b', since_ts: since }, { method: 'PUT' }),
    )
    polled.pairs = await surely(() => scanPairs(`${cluster.url}/v1/kv`, { ts: String(since) }))

    const work = async (): Promise<void> => {
      while (!isOver) {
        await bank.run(5)
        await pause(500)
      }
    }
    const working = Promise.all([work(), ...Array.from({ length: WRITERS }, () => writers.run(() => isOver))])
    const reading = Promise.all([
      ...[consume(cluster, () => end), consume(cluster, () => end)],
      copy(cluster.urls[0] as string, copied, hangUp.signal),
      ...(isCollecting
        ? []
        : [
            poll(cluster, polled, since, () => hangUp.signal.aborted),
            follow(cluster.urls[1] as string, followed, { sinceTs: since }, hangUp.signal),
          ]),
    ])
    /** Each server has committed since. */
    const everywhere = async (): Promise<void> => {
      const before = [...writers.at]
      const isMore = (): boolean => writers.at.every((count, i) => count > (before[i] as number))
      await expect.poll(isMore, { timeout: 120_000 }).toBe(true)
    }
    const disturbing = async (): Promise<void> => {
      await everywhere()
      for (let i = 0; i < kills; i++) {
        const leader = (await cluster.leader()) ?? 0
        const killed = (leader + i) % servers
        stopped = (killed + 1 + random.below(servers - 1)) % servers
        await cluster.pauseDuring(stopped, async () => {
          await cluster.restart(killed)
          // All logs that were open go on or are ended, that of the server that stands still too.
          const ts = await newTs(cluster)
          const resolved = () => surely(() => ask<Page>(`${awake.url}/v1/changes`)).then((page) => page.resolved_ts)
          await expect.poll(resolved, { timeout: 120_000, interval: 500 }).toBeGreaterThan(ts)
        })
        stopped = undefined
        await everywhere()
      }
      isOver = true
    }
    await Promise.race([Promise.all([disturbing(), working, disturb(() => isOver)]), reading])
    // Removals that have begun are done.
    await passed([copied], await newTs(cluster))
    const last = await surely(() => HttpTransaction.begin(cluster.url, { mode: 'optimistic', isolation: 'snapshot' }))
    end = last.startTs
    const pairs = await surely(() => last.scan(''))
    await last.rollback().catch(() => {}) // Else it ends by itself, a minute later.
    await passed(isCollecting ? [copied] : [polled, followed, copied], end)
    hangUp.abort()
    await reading
    report({ test: 'cluster-feed', ...counts() })

    const sorted = (each: Pairs): Pairs => new Map([...each].sort(([a], [b]) => (a < b ? -1 : 1)))
    const ofConsumer = (each: Pairs): Pairs => sorted(new Map([...each].filter(([key]) => !key.startsWith(APPLIED))))
    expect(sorted(copied.at(end))).toEqual(sorted(pairs))
    const applied = appliedIn(await surely(() => scanPairs(`${cluster.url}/v1/kv`, { prefix: APPLIED })))
    applied.pairs = polled.pairs
    expect(ofConsumer(applied.at(end))).toEqual(ofConsumer(pairs))
    const others = (all: readonly Txn[]): string[] =>
      standing(all, end)
        .filter((txn) => !isApplied(txn) && txn.commit_ts > copied.begin)
        .map((txn) => JSON.stringify(txn))
    const txns = standing(isCollecting ? applied.txns : polled.txns, end)
    const found = checkTxns(txns)
    for (const [name, commitTs] of writers.committed) expect([name, found.get(name)]).toEqual([name, commitTs])
    expect([...writers.refused].filter((name) => found.has(name))).toEqual([])
    expect(others(applied.txns)).toEqual(others(copied.txns))
    expect(copied.begin).toBeLessThan(end)
    if (!isCollecting) {
      expect(others(polled.txns)).toEqual(others(copied.txns))
      expect(standing(followed.txns, end)).toEqual(txns)
      expect(sorted(polled.at(end))).toEqual(sorted(pairs))
      await checkRecords(cluster, txns, since, end)
    } else {
      const versions = async (): Promise<number> => (await cluster.collected()).versions
      await expect.poll(versions, { timeout: 120_000, interval: 500 }).toBeGreaterThan(0)
    }
    await bank.close()
    await cluster.isSound()
  } catch (error) {
    throw new Error(`${error}, after ${JSON.stringify(counts())}`, { cause: error })
  } finally {
    hangUp.abort()
    await cluster.end()
  }
}
