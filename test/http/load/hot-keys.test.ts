import { expect, test } from 'vitest'
import { HotKeys, SAMPLED_EVERY } from '../../../src/http/load/hot-keys.js'
import { utf8 } from '../../store/support.js'

class Load {
  nowMs = 0
  looked = 0
  readonly hotKeys = new HotKeys(() => this.nowMs)

  request(writes: boolean, ...keys: readonly string[]): void {
    if (!this.hotKeys.isNext()) return
    this.looked++
    this.hotKeys.note({ keys: keys.map(utf8), writes })
  }

  list(limit = 10) {
    return this.hotKeys.list(limit).map(({ key, ...rates }) => ({ key: Buffer.from(key).toString(), ...rates }))
  }
}

test('the keys that are used most are found among many, with their rates, from a sample', () => {
  const load = new Load()
  for (let second = 0; second < 300; second++) {
    load.nowMs += 1000
    for (let i = 0; i < 1000; i++) {
      // Two hot keys in a steady rhythm, which no regular sample must miss or hit only.
      if (i % 2 === 0) load.request(false, 'read')
      else if (i % 4 === 1) load.request(true, 'written')
      else load.request(false, `one of many ${second} ${i}`)
    }
  }
  expect(load.looked).toBeGreaterThan((300_000 / SAMPLED_EVERY) * 0.8)
  expect(load.looked).toBeLessThan((300_000 / SAMPLED_EVERY) * 1.2)
  const [first, second, ...others] = load.list()
  expect([first?.key, second?.key]).toEqual(['read', 'written'])
  expect(first?.readsPerSecond).toBeGreaterThan(300)
  expect(first?.readsPerSecond).toBeLessThan(700)
  expect(first?.writesPerSecond).toBe(0)
  expect(second?.writesPerSecond).toBeGreaterThan(130)
  expect(second?.writesPerSecond).toBeLessThan(370)
  expect(others).toEqual([])
  expect(load.list(1)).toHaveLength(1)
})

test('what nobody uses any more fades, also over more time than a number has room for', () => {
  const load = new Load()
  const use = (key: string) => {
    for (let i = 0; i < 20 * SAMPLED_EVERY; i++) load.request(true, key)
  }
  use('old')
  expect(load.list()).toMatchObject([{ key: 'old' }])
  load.nowMs += 600_000
  expect(load.list()).toEqual([])
  load.nowMs += 1e9
  use('new')
  expect(load.list()).toMatchObject([{ key: 'new' }])
})

test('a few requests make no key a hot one; a request without keys, or with very many, is borne', () => {
  const load = new Load()
  for (let i = 0; i < 2 * SAMPLED_EVERY; i++) load.request(false, 'seldom')
  const many = Array.from({ length: 1000 }, (_, i) => `k${i}`)
  for (let i = 0; i < 10 * SAMPLED_EVERY; i++) {
    load.request(false)
    load.request(true, ...many)
  }
  expect(load.list().length).toBeLessThan(2)
})
