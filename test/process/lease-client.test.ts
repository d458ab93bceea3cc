import { once } from 'node:events'
import { join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { connect } from '../../src/client/index.js'
import { MortalServer } from './mortal-server.js'
import { killAll, startProcess, withTempDir } from './server-process.js'

/** Leases of the client library, while the server dies or stands still. */

afterAll(killAll)

test('a kill of the server takes the lease from nobody', () =>
  withTempDir(async (directory) => {
    const server = await MortalServer.start(join(directory, 'data'))
    const db = connect(server.url)
    const lease = await db.lease('leader', { ttlMs: 30_000 })
    const waiting = db.lease('leader', { ttlMs: 30_000, waitMs: 60_000 })
    for (let i = 0; i < 3; i++) {
      const restarted = server.restart()
      await db.transaction((txn) => txn.put('k', String(i)), { leases: [lease] })
      await restarted
    }
    expect(lease.signal.aborted).toBe(false)
    expect(await db.leases.get('leader')).toMatchObject({ holder: lease.holder, fence: lease.fence })
    await lease.release()
    const next = await waiting // It has waited through all of this.
    expect(next.fence).toBeGreaterThan(lease.fence)
    await db.close()
    await server.end()
  }))

test('a server that stands still ends the lease of its holder before another one is granted it', () =>
  withTempDir(async (directory) => {
    const server = await startProcess(join(directory, 'data'))
    const [db, other] = [connect(server.url), connect(server.url)]
    const lease = await db.lease('leader', { ttlMs: 1000 })
    const waiting = other.lease('leader', { ttlMs: 60_000, waitMs: 60_000 })
    let wasGranted = false
    void waiting.then(() => {
      wasGranted = true
    })
    void server.stop('SIGSTOP')
    await once(lease.signal, 'abort')
    expect(wasGranted).toBe(false)
    void server.stop('SIGCONT')
    const { fence } = await waiting
    expect(fence).toBeGreaterThan(lease.fence)
    // What the late holder still does is refused by the server too.
    const late = db.transaction((txn) => txn.put('k', 'late'), { leases: [{ name: 'leader', fence: lease.fence }] })
    await expect(late).rejects.toMatchObject({
      code: 'precondition_failed',
      fields: { failedChecks: [{ index: 0, lease: 'leader', fence }] },
    })
    expect(await db.get('k')).toBeUndefined()
    await Promise.all([db.close(), other.close()])
    await server.stop('SIGTERM')
  }))
