import { mkdtemp, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import type { Engine } from '../../../../src/store/leveldb/engine/engine.js'
import { syncedEachSecond } from '../../../../src/store/leveldb/engine/synced-each-second.js'
import { openLevelDbStore } from '../../../../src/store/leveldb/leveldb-store.js'
import { prewriteOf, put, read } from '../../support.js'

const OPS = [{ type: 'put', key: Buffer.from('k'), value: Buffer.from('v') }] as const

class Disk {
  reopens = 0
  /** One per fsync that was begun. */
  readonly syncs: { readonly end: () => void; readonly fail: (error: Error) => void }[] = []
  readonly engine = syncedEachSecond(
    {
      write: async () => {},
      reopen: async () => {
        this.reopens++
      },
      close: async () => {},
    } as Partial<Engine> as Engine,
    'nowhere',
    () => new Promise((end, fail) => this.syncs.push({ end, fail })),
  )
  answered = 0

  write(isSynced = false): Promise<void> {
    return this.engine.write(OPS, isSynced).then(() => {
      this.answered++
    })
  }
}

describe('in the time of a test', () => {
  beforeEach(() => void vi.useFakeTimers())
  afterEach(() => void vi.useRealTimers())

  test('an fsync begins a second after the first write that none covers; without writes there is none', async () => {
    const disk = new Disk()
    await disk.write()
    await vi.advanceTimersByTimeAsync(600)
    await disk.write()
    expect(disk.syncs).toHaveLength(0)
    await vi.advanceTimersByTimeAsync(400)
    expect(disk.syncs).toHaveLength(1)
    await disk.write()
    disk.syncs[0]?.end()
    await vi.advanceTimersByTimeAsync(999)
    expect(disk.syncs).toHaveLength(1)
    await vi.advanceTimersByTimeAsync(1)
    expect(disk.syncs).toHaveLength(2)
    disk.syncs[1]?.end()
    await vi.advanceTimersByTimeAsync(60_000)
    expect(disk.syncs).toHaveLength(2)
    await disk.write(true)
    await vi.advanceTimersByTimeAsync(60_000)
    expect(disk.syncs).toHaveLength(2)
  })

  test('writes wait while older ones have been unsynced for two seconds', async () => {
    const disk = new Disk()
    await disk.write()
    await vi.advanceTimersByTimeAsync(1900)
    await disk.write()
    await vi.advanceTimersByTimeAsync(200)
    void disk.write()
    await vi.advanceTimersByTimeAsync(10_000)
    expect(disk.answered).toBe(2)
    // The second write is old by now, so its fsync begins at once, and the third waits for that too.
    disk.syncs[0]?.end()
    await vi.advanceTimersByTimeAsync(10)
    expect([disk.syncs.length, disk.answered]).toEqual([2, 2])
    disk.syncs[1]?.end()
    await vi.advanceTimersByTimeAsync(10)
    expect(disk.answered).toBe(3)
  })

  test('after a failed fsync writes fail until the engine is opened again', async () => {
    const disk = new Disk()
    await disk.write()
    await vi.advanceTimersByTimeAsync(1000)
    disk.syncs[0]?.fail(new Error('EIO: i/o error, fdatasync'))
    await vi.advanceTimersByTimeAsync(10_000)
    const failed = { code: 'LEVEL_SYNC_FAILED', message: 'fsync: EIO: i/o error, fdatasync' }
    await expect(disk.write()).rejects.toMatchObject(failed)
    await expect(disk.write()).rejects.toMatchObject(failed)
    await disk.engine.reopen()
    await disk.write()
    expect([disk.reopens, disk.answered]).toEqual([1, 2])
  })

  test('closing syncs first', async () => {
    const disk = new Disk()
    await disk.write()
    const closing = disk.engine.close()
    await vi.advanceTimersByTimeAsync(10)
    expect(disk.syncs).toHaveLength(1)
    disk.syncs[0]?.end()
    await closing
  })
})

test('a real directory: its logs are synced while they come and go', { tags: ['long'] }, async () => {
  const directory = await mkdtemp(join(tmpdir(), 'perkv-1s-'))
  try {
    const store = await openLevelDbStore({ directory, durability: '1s' })
    const logs = async () => (await readdir(directory)).filter((name) => name.endsWith('.log')).sort()
    const before = await logs()
    for (let ts = 10; (await logs())[0] === before[0]; ts++)
      await store.prewrite(prewriteOf(ts, [put(`k${ts}`, 'x'.repeat(256 * 1024))], { tryOnePc: true }))
    await store.close()
    const again = await openLevelDbStore({ directory, durability: '1s' })
    expect(await read(again, 'k10')).toHaveLength(256 * 1024)
    await again.close()
  } finally {
    await rm(directory, { recursive: true })
  }
})
