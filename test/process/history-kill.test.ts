import { afterAll, expect, test } from 'vitest'
import { connect } from '../../src/client/index.js'
import { Bank } from '../anomalies/bank.js'
import { forbiddenAnomalies } from '../anomalies/forbidden-anomalies.js'
import { ISOLATIONS, MODES } from '../anomalies/http-transaction.js'
import { ListAppendWorkload } from '../anomalies/list-append-workload.js'
import { report, settings } from '../anomalies/settings.js'
import { MortalServer } from './mortal-server.js'
import { killAll, withTempDir } from './server-process.js'

afterAll(killAll)

/** See test/anomalies/settings.ts for the long form. */
const { seed, txns, kills } = settings({ seed: 1, txns: 80, kills: 2 })

test('kill -9 again and again: one history over all lives', () =>
  withTempDir(async (data) => {
    const server = await MortalServer.start(data)
    const db = connect(server.url, { lockWaitMs: 1000 })
    let untilKill = txns
    let killing: Promise<void> | undefined
    let killsLeft = kills
    /** A life ends in the middle of everything, once enough has been done in it. */
    const onTransaction = (): void => {
      if (--untilKill > 0 || killsLeft === 0 || killing !== undefined) return
      killsLeft--
      killing = server.restart().then(() => {
        untilKill = txns
        killing = undefined
      })
    }
    const all = MODES.flatMap((mode) => ISOLATIONS.map((isolation) => ({ mode, isolation })))
    const lists = all.map((each) => new ListAppendWorkload(server, { ...each, seed, db, clients: 4, onTransaction }))
    const bank = new Bank(server, { seed, db, clients: 4, onTransfer: onTransaction })
    const counts = () => ({
      seed,
      lives: server.lives,
      bank: bank.counts,
      lists: lists.map((list) => list.counts),
    })
    try {
      await bank.open()
      const share = Math.ceil((txns * (kills + 1)) / (lists.length + 1))
      await Promise.all([...lists.map((list) => list.run(share)), bank.run(share)])
      while (killing !== undefined) await killing
      for (const list of lists) await list.readAll()
      await db.close()
      await bank.close()
    } catch (error) {
      throw new Error(JSON.stringify(counts()), { cause: error })
    } finally {
      await killing
      await server.end()
    }
    report({ test: 'history-kill', ...counts() })
    for (const [i, list] of lists.entries()) {
      const kind = all[i] as (typeof all)[number]
      const forbidden = forbiddenAnomalies(list.history(), kind)
      expect(forbidden, JSON.stringify({ ...kind, ...counts() })).toEqual([])
      expect(list.counts.committed, JSON.stringify(counts())).toBeGreaterThan(0)
    }
    expect(bank.counts.committed, JSON.stringify(counts())).toBeGreaterThan(0)
    expect(server.lives, JSON.stringify(counts())).toBe(kills + 1)
  }))
