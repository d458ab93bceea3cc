import { beforeEach, describe, expect, test } from 'vitest'
import type { Store } from '../../../../src/store/store.js'
import { TIMESTAMP_MAX } from '../../../../src/timestamp.js'
import {
  codeOf,
  deferred,
  EngineFailure,
  prewriteOf,
  put,
  read,
  START_MS,
  TappedEngine,
  testStores,
  utf8,
  WriteGate,
  watch,
  write,
} from '../../support.js'

const stores = testStores()
let tapped: TappedEngine
let directory: string
let store: Store

beforeEach(async () => {
  tapped = new TappedEngine()
  directory = await stores.directory()
  store = await stores.open({ openEngine: tapped.open, directory, now: () => START_MS })
  await write(store, 5, 6, [put('x', 'on'), put('y', 'on')])
  await store.tso(1)
})

type Mode = 'fails' | 'lands but reports failure'
const MODES: readonly Mode[] = ['fails', 'lands but reports failure']

/** It is told of the failure, unless there is a better reason: z was written meanwhile. */
const REFUSED: Record<Mode, string> = { fails: 'storage_unavailable', 'lands but reports failure': 'write_conflict' }

const readSet = (...keys: string[]) => ({ keys: keys.map(utf8), ranges: [] })

/** Another transaction's batch is in flight, and goes wrong when the test says so. */
async function inFlight(mode: Mode): Promise<{ readonly fail: () => void; readonly code: Promise<string> }> {
  const { promise, resolve } = deferred()
  tapped.onWrite = async (_, land) => {
    tapped.onWrite = (_next, landNext) => landNext()
    await promise
    if (mode !== 'fails') await land()
    throw new EngineFailure('disk full')
  }
  const code = codeOf(store.prewrite(prewriteOf(12, [put('z', 'other')], { tryOnePc: true })))
  await tapped.quiet()
  return { fail: resolve, code }
}

/** Goes off call in one phase, if y is on call, and if nobody has written z. It waits for whoever is writing z. */
const leaveX = () =>
  store.prewrite(prewriteOf(10, [put('x', 'off')], { tryOnePc: true, minCommitTs: 20, reads: readSet('y', 'z') }))
const leaveY = () => store.prewrite(prewriteOf(11, [put('y', 'off')], { tryOnePc: true, reads: readSet('x') }))

const letAllGo = async (gate: WriteGate): Promise<void> => {
  for (let i = 0; i < 5; i++) {
    gate.release()
    await tapped.quiet()
  }
  gate.open()
}

describe.each(MODES)('the database is opened anew while reads are validated: the other write %s', (mode) => {
  test('the transaction is refused, and writes nothing', async () => {
    const other = await inFlight(mode)
    const leaving = watch(codeOf(leaveX()))
    await tapped.quiet()
    expect([leaving.isSettled(), store.locks?.count]).toEqual([false, 2])
    const writes = tapped.writes.length
    other.fail()
    expect([await other.code, await leaving.promise]).toEqual(['storage_unavailable', REFUSED[mode]])
    await tapped.quiet()
    expect([tapped.reopens, tapped.writes.length, store.locks?.count]).toEqual([1, writes, 0])
    expect((await store.scanLock({ maxTs: TIMESTAMP_MAX })).locks).toEqual([])
    expect(await read(store, 'x')).toBe('on')
    expect(await read(store, 'z')).toBe(mode === 'fails' ? undefined : 'other')

    await store.close()
    store = await stores.open({ openEngine: tapped.open, directory, now: () => START_MS })
    expect(await read(store, 'x')).toBe('on')
    expect(await codeOf(leaveX())).toBe(mode === 'fails' ? 'none' : REFUSED[mode])
    expect(await read(store, 'x')).toBe(mode === 'fails' ? 'off' : 'on')
  })

  test('no write skew: nobody could have met its lock', async () => {
    const other = await inFlight(mode)
    const first = codeOf(leaveX())
    await tapped.quiet()
    other.fail()
    const gate = new WriteGate(tapped)
    await other.code
    await tapped.quiet()
    const second = codeOf(leaveY())
    await tapped.quiet()
    await letAllGo(gate)
    expect([await first, await second]).toEqual([REFUSED[mode], 'none'])
    expect([await read(store, 'x'), await read(store, 'y')]).toEqual(['on', 'off'])
  })

  test('a snapshot reads the same twice', async () => {
    const other = await inFlight(mode)
    const leaving = codeOf(leaveX())
    await tapped.quiet()
    other.fail()
    const gate = new WriteGate(tapped)
    await other.code
    await tapped.quiet()
    const before = await read(store, 'x', 1000)
    await letAllGo(gate)
    await leaving
    expect([before, await read(store, 'x', 1000)]).toEqual(['on', 'on'])
  })

  test.each([true, false])('the same when opening takes a while, and then works: %s', async (opens) => {
    const goOn = deferred()
    tapped.onReopen = async (reopen) => {
      await goOn.promise
      if (!opens) throw new EngineFailure('still full')
      await reopen()
    }
    const other = await inFlight(mode)
    const leaving = codeOf(leaveX())
    await tapped.quiet()
    const writes = tapped.writes.length
    other.fail()
    await tapped.quiet()
    goOn.resolve()
    expect(await other.code).toBe('storage_unavailable')
    expect(await leaving).toBe(opens ? REFUSED[mode] : 'storage_unavailable')
    await tapped.quiet()
    expect([tapped.writes.length, store.upkeep.probe()]).toEqual([writes, opens])
    await store.close()
    store = await stores.open({ openEngine: tapped.open, directory, now: () => START_MS })
    expect(await read(store, 'x')).toBe('on')
    expect(store.locks?.count).toBe(0)
  })
})
