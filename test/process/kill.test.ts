import { readdir, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { connect } from '../../src/client/index.js'
import { Bank } from '../anomalies/bank.js'
import { Random } from '../anomalies/random.js'
import { report, settings } from '../anomalies/settings.js'
import { MortalServer } from './mortal-server.js'
import { Registers } from './registers.js'
import { killAll, withTempDir } from './server-process.js'

afterAll(killAll)

/** `npm run test:kill` is the long form. */
const { seed, txns, kills } = settings({ seed: 1, txns: 20, kills: 3 })
/** Then its books are closed, and another one opens: an audit reads all of them. */
const KILLS_A_BANK = 10
/** Of the transfers and register steps of one life, together. */
const stepsOf = (random: Random): number => txns * 2 + random.below(txns * 4)

/**
 * Bank transfers by raw Percolator calls (two-phase, async commit, one-phase, pessimistic; half of them abandoned somewhere),
 * interactive transactions and the library; REST calls, conditional and not, with Idempotency-Key and without; auditors and
 * readers of the past. All at once on one server, which is killed in the midst of it.
 */
test('kill -9: what was acknowledged is there, what was refused is not, and books balance at every snapshot', () =>
  withTempDir(async (data) => {
    const random = new Random(seed)
    const server = await MortalServer.start(data)
    const db = connect(server.url, { lockWaitMs: 1000 })
    let killsLeft = kills
    let stepsLeft = stepsOf(random)
    let killing: Promise<void> | undefined
    const onStep = (): void => {
      if (--stepsLeft > 0 || killsLeft === 0 || killing !== undefined) return
      killsLeft--
      killing = server.restart().then(() => {
        stepsLeft = stepsOf(random)
        killing = undefined
      })
    }
    const registers = new Registers(server, { seed, db, clients: 4, onStep })
    const totals = { transfers: 0, committed: 0, aborted: 0, unknown: 0, abandoned: 0, audits: 0 }
    const counts = () => ({ seed, kills: server.lives - 1, bank: totals, registers: registers.counts })
    try {
      const writing = registers.run()
      writing.catch(() => {}) // Awaited below.
      const failed = writing.then(() => new Promise<never>(() => {}))
      for (let number = 0; killsLeft > 0; number++) {
        const until = Math.max(0, killsLeft - KILLS_A_BANK)
        const bank = new Bank(server, { seed: seed * 1000 + number, db, clients: 6, onTransfer: onStep })
        await killing
        await surviving(server, () => bank.open())
        while (killsLeft > until) await Promise.race([bank.run(txns), failed])
        await killing
        killing = Promise.resolve() // Nobody dies while the books are closed.
        await bank.close()
        killing = undefined
        for (const [name, count] of Object.entries(bank.counts)) totals[name as keyof typeof totals] += count
      }
      registers.end()
      await writing
      await db.put('after', 'all')
    } catch (error) {
      throw new Error(JSON.stringify(counts()), { cause: error })
    } finally {
      registers.end()
      await killing
      await server.end()
    }
    const restarts = server.restartsMs.map(Math.round).sort((a, b) => a - b)
    const restartMs = { median: restarts[restarts.length >> 1], max: restarts.at(-1) }
    report({ test: 'kill', ...counts(), restartMs, dataBytes: await bytesIn(data) })
    expect(server.lives).toBe(kills + 1)
    const { acknowledged, checked, checkedAgain, repeated, refused } = registers.counts
    const least = Math.min(totals.committed, totals.audits, acknowledged, checked, checkedAgain, repeated, refused)
    expect(least, JSON.stringify(counts())).toBeGreaterThan(0)
  }))

async function surviving<T>(server: MortalServer, body: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await body()
    } catch (error) {
      if (!(error instanceof TypeError)) throw error
      await server.isUp()
    }
  }
}

async function bytesIn(directory: string): Promise<number> {
  const sizes = (await readdir(directory)).map(async (name) => (await stat(join(directory, name))).size)
  return (await Promise.all(sizes)).reduce((sum, size) => sum + size, 0)
}
