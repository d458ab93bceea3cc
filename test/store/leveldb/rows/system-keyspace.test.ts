import { beforeEach, describe, expect, test } from 'vitest'
import type { Store } from '../../../../src/store/store.js'
import type { SystemName, SystemWrite } from '../../../../src/store/system-records.js'
import {
  codeOf,
  EngineFailure,
  prewriteOf,
  put,
  TappedEngine,
  testStores,
  turn,
  utf8,
  WriteGate,
} from '../../support.js'

const stores = testStores()

let tapped: TappedEngine
let store: Store
beforeEach(async () => {
  tapped = new TappedEngine()
  store = await stores.open({ openEngine: tapped.open })
  tapped.writes.length = 0
})

const onePc = (startTs: number, key: string) => prewriteOf(startTs, [put(key)], { tryOnePc: true, linearizable: true })
const record = (name: SystemName, value: string): SystemWrite => ({ name, value: utf8(value) })

describe('while a failed write is in doubt', () => {
  beforeEach(async () => {
    await store.system.write([record('pin/a', 'old')])
    tapped.onRequireRoom = async () => {
      throw new Error('no room')
    }
    tapped.onWrite = async () => {
      throw new EngineFailure('disk full')
    }
    expect(await codeOf(store.system.write([record('pin/a', 'new')]))).toBe('storage_unavailable')
    await tapped.quiet()
  })

  test('no record is answered, nor that there is none', async () => {
    expect(await codeOf(store.system.get('pin/a'))).toBe('storage_unavailable')
    expect(await codeOf(store.system.get('pin/b'))).toBe('storage_unavailable')
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
