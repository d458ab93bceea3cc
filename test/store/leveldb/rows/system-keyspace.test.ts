import { beforeEach, describe, expect, test } from 'vitest'
import { keyText } from '../../../../src/bytes/key-text.js'
import type { PrewriteAnswer } from '../../../../src/percolator/api.js'
import type { Store } from '../../../../src/store/store.js'
import { claimOf, type SystemName, type SystemWrite } from '../../../../src/store/system-records.js'
import {
  codeOf,
  EngineFailure,
  prewriteOf,
  put,
  read,
  TappedEngine,
  testStores,
  text,
  turn,
  utf8,
  WriteGate,
  watch,
} from '../../support.js'

const stores = testStores()

let tapped: TappedEngine
let store: Store
beforeEach(async () => {
  tapped = new TappedEngine()
  store = await stores.open({ openEngine: tapped.open })
  tapped.writes.length = 0
})

const record = (name: SystemName, value: string): SystemWrite => ({ name, value: utf8(value) })
const stored = async (name: SystemName): Promise<string> => text((await store.system.get(name)) ?? utf8('absent'))
const onePc = (startTs: number, key: string) => prewriteOf(startTs, [put(key)], { tryOnePc: true, linearizable: true })

describe('records beside a transaction', () => {
  test('are written in its batch, and made from its answer', async () => {
    const startTs = await store.tso(1)
    const beside = ({ onePcCommitTs }: PrewriteAnswer) => [
      record('outcome/a', `committed at ${onePcCommitTs}`),
      record('pin/a', 'held'),
    ]
    const { onePcCommitTs } = await store.prewrite(onePc(startTs, 'a'), beside)
    expect(await stored('outcome/a')).toBe(`committed at ${onePcCommitTs}`)
    expect(await stored('pin/a')).toBe('held')
    expect(tapped.writes).toHaveLength(1)
    await store.prewrite(onePc(await store.tso(1), 'b'), () => [{ name: 'pin/a', value: undefined }])
    expect(await stored('pin/a')).toBe('absent')
  })

  test('are written where a repeat finds its mutations done', async () => {
    const request = onePc(await store.tso(1), 'a')
    const first = await store.prewrite(request)
    expect(await store.prewrite(request, () => [record('outcome/a', 'again')])).toEqual(first)
    expect(await stored('outcome/a')).toBe('again')
  })

  test('that refuse their transaction leave nothing of it', async () => {
    const refused = store.prewrite(onePc(await store.tso(1), 'a'), () => {
      throw new Error('the lease has run out')
    })
    await expect(refused).rejects.toThrow('the lease has run out')
    expect(tapped.writes).toEqual([])
    expect(await read(store, 'a')).toBeUndefined()
    expect(store.lockCount).toBe(0)
  })

  test('are not there where their batch fails', async () => {
    const request = onePc(await store.tso(1), 'a')
    tapped.onWrite = async (_, land) => {
      tapped.onWrite = (_next, landNext) => landNext()
      void land
      throw new EngineFailure('disk full')
    }
    expect(await codeOf(store.prewrite(request, () => [record('outcome/a', 'done')]))).toBe('storage_unavailable')
    expect([await stored('outcome/a'), await read(store, 'a')]).toEqual(['absent', undefined])
  })
})

describe('names', () => {
  test('a claim on a name waits for who holds it, and for nobody who has the key of that text', async () => {
    let release = (): void => {}
    const held = store.system.hold(['pin/a'], () => new Promise<void>((done) => (release = done)))
    const claim = { written: [keyText(utf8('b')), claimOf('pin/a')], read: [], isAlone: false }
    const claimed = watch(store.exclusive(claim, async () => {}))
    for (const key of ['pin/a', 'outcome/a']) await store.prewrite(onePc(await store.tso(1), key))
    await turn()
    expect(claimed.isSettled()).toBe(false)
    release()
    await Promise.all([held, claimed.promise])
  })

  test('claims that share a name run together, and keep others from changing it', async () => {
    const shared = { written: [], read: [claimOf('pin/a')], isAlone: false }
    const releases: (() => void)[] = []
    const readers = [1, 2].map(() => store.exclusive(shared, () => new Promise<void>((done) => releases.push(done))))
    await turn()
    expect(releases).toHaveLength(2)
    const changed = watch(store.system.hold(['pin/a'], () => store.system.write([record('pin/a', 'new')])))
    await turn()
    expect(changed.isSettled()).toBe(false)
    for (const release of releases) release()
    await Promise.all([...readers, changed.promise])
    expect(await stored('pin/a')).toBe('new')
  })

  test('are listed by prefix, with any bytes in them', async () => {
    const names = ['outcome/', 'outcome/\x00', 'outcome/a', 'outcome/\xff\xff'] as const
    await store.system.write([...names].reverse().map((name) => record(name, name)))
    await store.system.write([record('pin/a', 'pin')])
    expect([...(await store.system.list('outcome/')).keys()]).toEqual(names)
    expect([...(await store.system.list('outcome/\xff\xff')).keys()]).toEqual(['outcome/\xff\xff'])
    expect([...(await store.system.list('pin/')).keys()]).toEqual(['pin/a'])
  })

  test('are no keys: nothing that clients read or delete reaches their records', async () => {
    await store.system.write([record('outcome/a', 'done'), record('pin/a', 'held')])
    for (const key of ['outcome/a', 'soutcome/a', 's']) expect([key, await read(store, key)]).toEqual([key, undefined])
    expect((await store.scan({ limit: 10, ts: await store.tso(1) })).pairs).toEqual([])
    await store.deleteRange({ start: utf8(''), end: utf8('\xff\xff') })
    expect([await stored('outcome/a'), await stored('pin/a')]).toEqual(['done', 'held'])
  })
})

describe('while a failed write is in doubt', () => {
  beforeEach(async () => {
    await store.system.write([record('outcome/a', 'final'), record('pin/a', 'old')])
    tapped.onRequireRoom = async () => {
      throw new Error('no room')
    }
    tapped.onWrite = async () => {
      throw new EngineFailure('disk full')
    }
    expect(await codeOf(store.system.write([record('pin/a', 'new')]))).toBe('storage_unavailable')
    await tapped.quiet()
  })

  test('a record that somebody may have replaced is not answered; one that nobody replaces is', async () => {
    expect(await codeOf(store.system.get('pin/a'))).toBe('storage_unavailable')
    expect(await codeOf(store.system.get('pin/b', () => true))).toBe('storage_unavailable')
    expect(await codeOf(store.system.get('outcome/a', () => false))).toBe('storage_unavailable')
    expect(text((await store.system.get('outcome/a', () => true)) ?? utf8('absent'))).toBe('final')
  })
})

test('writes of names share the group commit with transactions', async () => {
  const gate = new WriteGate(tapped)
  const first = store.prewrite(onePc(await store.tso(1), 'a'))
  while (gate.held === 0) await turn()
  const others = [
    store.prewrite(onePc(await store.tso(1), 'b')),
    store.system.write([record('pin/a', 'held')]),
    store.system.write([record('pin/b', 'held')]),
  ]
  await tapped.quiet()
  gate.open()
  await Promise.all([first, ...others])
  expect(tapped.writes).toHaveLength(2)
})
