import { expect } from 'vitest'
import { connect } from '../../src/client/index.js'
import { Bank } from '../anomalies/bank.js'
import { forbiddenAnomalies } from '../anomalies/forbidden-anomalies.js'
import { ISOLATIONS, MODES } from '../anomalies/http-transaction.js'
import { ListAppendWorkload } from '../anomalies/list-append-workload.js'
import type { Random } from '../anomalies/random.js'
import { report } from '../anomalies/settings.js'
import type { Cluster } from './cluster.js'

export interface HistoryOptions {
  readonly seed: number
  readonly txns: number
  readonly kills: number
  readonly random: Random
  /** Old versions are collected meanwhile. */
  readonly isCollecting?: boolean
  /** What goes wrong besides servers that are killed and stopped. */
  readonly disturb?: (isOver: () => boolean) => Promise<void>
}

/** A bank and lists on a cluster whose servers are killed and stopped. Ends it. */
export async function clusterHistory(
  cluster: Cluster,
  { seed, txns, kills, random, isCollecting = false, disturb = async () => {} }: HistoryOptions,
): Promise<void> {
  const db = connect(cluster.urls[0] as string, { lockWaitMs: 1000, retryMs: 120_000, connectTimeoutMs: 120_000 })
  const all = MODES.flatMap((mode) => ISOLATIONS.map((isolation) => ({ mode, isolation })))
  const lists = all.map((each) => new ListAppendWorkload(cluster, { ...each, seed, db, clients: 3 }))
  const bank = new Bank(cluster, { seed, db, clients: 4, mayFail: true })
  const counts = () => ({
    ...{ seed, kills: cluster.kills, pauses: cluster.pauses, bank: bank.counts },
    lists: lists.map((list) => list.counts),
  })
  let isOver = false
  try {
    await bank.open()
    const work = async (): Promise<void> => {
      const share = Math.ceil(txns / (lists.length + 1))
      await Promise.all([...lists.map((list) => list.run(share)), bank.run(2 * share)])
      isOver = true
    }
    await Promise.all([work(), cluster.disturb(kills, random, () => isOver), disturb(() => isOver)])
    await cluster.isUp()
    // A server that was killed holds collections back until nothing was heard of it for 20 s.
    while (isCollecting && (await cluster.collected()).versions === 0)
      await Promise.all([...lists.map((list) => list.run(5)), bank.run(10)])
    for (const list of lists) await list.readAll()
    await db.close()
    await bank.close()
    const collected = await cluster.collected()
    report({ test: 'cluster-history', ...counts(), ...collected })
    if (isCollecting) expect(collected.versions, JSON.stringify(counts())).toBeGreaterThan(0)
    for (const [i, list] of lists.entries()) {
      const kind = all[i] as (typeof all)[number]
      const forbidden = forbiddenAnomalies(list.history(), kind)
      expect(forbidden, JSON.stringify({ ...kind, ...counts() })).toEqual([])
      expect(list.counts.committed, JSON.stringify(counts())).toBeGreaterThan(0)
    }
    expect(bank.counts.committed, JSON.stringify(counts())).toBeGreaterThan(0)
    expect(cluster.kills, JSON.stringify(counts())).toBeGreaterThan(0)
    await cluster.isSound()
  } catch (error) {
    throw new Error(`${error}, after ${JSON.stringify(counts())}`, { cause: error })
  } finally {
    await cluster.end()
  }
}
