import { afterAll, expect, test } from 'vitest'
import { connect } from '../../src/client/index.js'
import { Bank } from '../anomalies/bank.js'
import { ISOLATIONS, MODES } from '../anomalies/http-transaction.js'
import { type AnomalyType, checkListAppend } from '../anomalies/list-append.js'
import { ListAppendWorkload } from '../anomalies/list-append-workload.js'
import { Random } from '../anomalies/random.js'
import { report, settings } from '../anomalies/settings.js'
import { killAll } from '../process/server-process.js'
import { Cluster, type ClusterOptions, COLLECTING } from './cluster.js'
import { startEmulator } from './emulator/emulator.mjs'

afterAll(killAll)

/** See test/anomalies/settings.ts for the long form. */
const { seed, txns, kills } = settings({ seed: 1, txns: 200, kills: 3 })

const SERVERS = 3
const FAULTS = { failBefore: 0.02, failAfter: 0.02, late: 0.01 }
const ALLOWED: ReadonlySet<AnomalyType> = new Set<AnomalyType>(['G2', 'G2-realtime'])

async function history(options: ClusterOptions): Promise<void> {
  const random = new Random(seed)
  const emulator = await startEmulator(FAULTS)
  const cluster = await Cluster.start(emulator.host, SERVERS, random.fork(), options)
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
    await Promise.all([work(), cluster.disturb(kills, random, () => isOver)])
    await cluster.isUp()
    // A server that was killed holds collections back until nothing was heard of it for 20 s.
    while (options === COLLECTING && (await cluster.collected()).versions === 0)
      await Promise.all([...lists.map((list) => list.run(5)), bank.run(10)])
    for (const list of lists) await list.readAll()
    await db.close()
    await bank.close()
    const collected = await cluster.collected()
    report({ test: 'cluster-history', ...counts(), ...collected })
    if (options === COLLECTING) expect(collected.versions, JSON.stringify(counts())).toBeGreaterThan(0)
    for (const [i, list] of lists.entries()) {
      const isWeak = all[i]?.isolation === 'snapshot' && all[i]?.mode === 'optimistic'
      const forbidden = checkListAppend(list.history()).filter(({ type }) => !(isWeak && ALLOWED.has(type)))
      expect(forbidden, JSON.stringify({ ...all[i], ...counts() })).toEqual([])
      expect(list.counts.committed, JSON.stringify(counts())).toBeGreaterThan(0)
    }
    expect(bank.counts.committed, JSON.stringify(counts())).toBeGreaterThan(0)
    expect(cluster.kills, JSON.stringify(counts())).toBeGreaterThan(0)
    await cluster.isSound()
  } catch (error) {
    throw new Error(`${error}, after ${JSON.stringify(counts())}`, { cause: error })
  } finally {
    await cluster.end()
    await emulator.stop()
  }
}

const WHAT = 'three servers on one table, which are killed and stopped, whose calls fail: one history'
test(WHAT, { timeout: 600_000 }, () => history({}))
test(`${WHAT}, while old versions are collected`, { tags: ['long'], timeout: 600_000 }, () => history(COLLECTING))
