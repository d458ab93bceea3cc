import { readdir } from 'node:fs/promises'
import { describe, expect, test } from 'vitest'
import { packRecord } from '../../../../src/percolator/codec/record.js'
import { DataDirectoryError } from '../../../../src/store/leveldb/data-directory-error.js'
import { META_MARK } from '../../../../src/store/leveldb/records/keyspace.js'
import { timestampFromMs } from '../../../../src/timestamp.js'
import { Machine } from '../../../http/support.js'
import { codeOf, prewriteOf, put, read, TappedEngine, testStores, utf8, write } from '../../support.js'

const stores = testStores()
const HOUR_MS = 3_600_000

describe('a clock that no timestamp can express', () => {
  test('is refused before a directory is made', async () => {
    const directory = await stores.directory()
    const machine = new Machine()
    machine.wallMs = Date.UTC(2120, 0)
    const refused = stores.open({ directory, ...machine })
    await expect(refused).rejects.toThrow(DataDirectoryError)
    await expect(refused).rejects.toThrow(/says 2120, .* set the clock$/)
    expect(await readdir(directory)).toEqual([])
  })

  test('has carried the mark away, under an older version: the start says how to put it right', async () => {
    const directory = await stores.directory()
    await (await stores.open({ directory })).close()
    const tapped = new TappedEngine()
    const engine = await tapped.open(directory)
    const mark = timestampFromMs(Date.UTC(2120, 0)) + 1
    await tapped.engine.write([{ type: 'put', key: META_MARK, value: packRecord([mark]) }], true)
    await engine.close()
    const refused = stores.open({ directory })
    await expect(refused).rejects.toThrow(DataDirectoryError)
    await expect(refused).rejects.toThrow(/^the timestamps of .* set the clock, then perkv repair --reset-mark --data /)
  })
})

describe('over a restart', () => {
  const said: string[] = []
  const options = (machine: Machine, directory: string) => ({
    ...{ directory, now: machine.now, monotonicNow: machine.monotonicNow },
    onClockStep: (message: string) => void said.push(message),
  })

  test('jumps of the clock are left out of ages, also those of the run before', async () => {
    const machine = new Machine()
    const directory = await stores.directory()
    const first = await stores.open(options(machine, directory))
    const startTs = await first.tso(1)
    await first.prewrite(prewriteOf(startTs, [put('a')], { lockTtl: 5000 }))
    const steadyMs = first.time.steadyMs()
    machine.pass(100)
    machine.step(HOUR_MS)
    await first.tso(1)
    await first.close()
    expect(said.splice(0)).toEqual([expect.stringMatching(/jumped forward by 60 minutes/)])

    const second = await stores.open(options(machine, directory))
    expect(second.time.steadyMs() - steadyMs).toBe(100)
    const status = { primary: utf8('a'), lockTs: startTs, callerStartTs: 0 }
    expect(await second.checkTxnStatus({ ...status, currentTs: await second.tso(1) })).toMatchObject({
      status: 'locked',
      lockTtl: 5000 + HOUR_MS,
    })
    machine.pass(5000)
    expect(await second.checkTxnStatus({ ...status, currentTs: second.now() })).toMatchObject({ status: 'rolled_back' })
    expect(said).toEqual([])
  })

  test('after a crash nothing looks older, though timestamps begin at the mark', async () => {
    const machine = new Machine()
    const tapped = new TappedEngine()
    const directory = await stores.directory()
    const first = await stores.open({ ...options(machine, directory), openEngine: tapped.open })
    const startTs = await first.tso(1)
    await first.prewrite(prewriteOf(startTs, [put('a')], { lockTtl: 2500 }))
    tapped.onWrite = async () => {
      throw new Error('killed')
    }
    await first.close()

    const second = await stores.open(options(machine, directory))
    expect((second.now() - startTs) / 2048).toBeGreaterThan(2999)
    machine.pass(2000)
    expect(await codeOf(read(second, 'a', second.now()))).toBe('key_locked')
    const status = { primary: utf8('a'), lockTs: startTs, callerStartTs: 0 }
    expect(await second.checkTxnStatus({ ...status, currentTs: second.now() })).toMatchObject({ status: 'locked' })
    expect(said).toEqual([])
  })

  test('a clock that is hours behind the last run is told', async () => {
    const machine = new Machine()
    const directory = await stores.directory()
    const first = await stores.open(options(machine, directory))
    await write(first, 5, 6, [put('a', '1')])
    await first.close()
    machine.step(-5 * HOUR_MS)
    await stores.open(options(machine, directory))
    expect(said.splice(0)).toEqual([expect.stringMatching(/^the clock is 5 hours behind .* perkv repair --reset-mark/)])
  })
})
