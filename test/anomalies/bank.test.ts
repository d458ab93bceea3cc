import { rm } from 'node:fs/promises'
import { expect, test } from 'vitest'
import { connect } from '../../src/client/index.js'
import { startServer } from '../http/support.js'
import { Bank } from './bank.js'
import { report, settings } from './settings.js'

const { seed, txns } = settings({ seed: 1, txns: 160, kills: 0 })

/**
 * Transfers by raw Percolator calls (two-phase, async commit, one-phase, pessimistic), interactive transactions and the
 * client library, all at once. All but the library's are abandoned half of the time, before a random step; locks live 1 to
 * 100 ms. Auditors read all the while.
 */
test('a bank whose clients vanish', async () => {
  const server = await startServer()
  try {
    const url = `http://127.0.0.1:${await server.listen()}`
    const db = connect(url)
    const bank = new Bank({ url, isUp: async () => {} }, { seed, db })
    await bank.open()
    try {
      await bank.run(txns)
      await db.close()
      await bank.close()
    } catch (error) {
      throw new Error(`seed ${seed}, ${JSON.stringify(bank.counts)}`, { cause: error })
    }
    report({ test: 'bank', seed, ...bank.counts })
    const { committed, abandoned, audits } = bank.counts
    expect(Math.min(committed, abandoned, audits), JSON.stringify({ seed, ...bank.counts })).toBeGreaterThan(0)
  } finally {
    server.app.server.closeAllConnections()
    await server.app.close()
    await server.store.close()
    await rm(server.directory, { recursive: true, force: true })
  }
})
