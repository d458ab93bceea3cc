import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import type { Engine } from '../../../../src/store/leveldb/engine/engine.js'
import { LookUps } from '../../../../src/store/leveldb/engine/look-ups.js'

const KEY = Buffer.from('key')
const VALUE = Buffer.from('value')
/** Longest time that one look-up counts for. */
const STALL_MS = 3

let nowMs: number
let takesMs: number
let lookUps: LookUps

const engine = {
  get: async () => VALUE,
  getSync() {
    nowMs += takesMs
    return VALUE
  },
} satisfies Partial<Engine>

beforeEach(() => {
  nowMs = 0
  vi.spyOn(performance, 'now').mockImplementation(() => nowMs)
  lookUps = new LookUps(engine as unknown as Engine)
})
afterEach(() => vi.restoreAllMocks())

/** @returns how many of them the thread pool took. */
function lookUp(count: number, eachMs: number): number {
  takesMs = eachMs
  let pooled = 0
  for (let i = 0; i < count; i++) if (lookUps.get(KEY) instanceof Promise) pooled++
  return pooled
}

test('quick look-ups run on the event loop', async () => {
  expect(lookUp(10_000, 0.005)).toBe(0)
  expect(lookUps.areQuick).toBe(true)
  expect(await lookUps.get(KEY)).toBe(VALUE)
})

test.each([STALL_MS, 100])('a few of %d ms do not count: another thread may have had the core', (ms) => {
  for (let round = 0; round < 100; round++) {
    expect(lookUp(3, ms)).toBe(0)
    expect(lookUp(300, 0.005)).toBe(0)
  }
})

test('after several slow ones the thread pool takes a few dozen', () => {
  expect(lookUp(4, STALL_MS)).toBe(0)
  expect(lookUps.areQuick).toBe(false)
  expect(lookUp(64, 0.005)).toBe(64)
  expect(lookUps.areQuick).toBe(true)
  expect(lookUp(1000, 0.005)).toBe(0)
})

test('while all are slow, ever fewer are tried on the event loop, and later few are enough again', () => {
  expect(lookUp(20_000, 5)).toBeGreaterThan(20_000 - 20)
  lookUp(2048, 0.005)
  expect(lookUp(1000, 0.005)).toBe(0)
  expect(lookUp(4, STALL_MS)).toBe(0)
  expect(lookUp(65, 0.005)).toBe(64)
})

test('the thread pool takes over where many are somewhat slow, too', () => {
  let pooled = 0
  for (let i = 0; i < 2000; i++) pooled += lookUp(1, i % 4 === 0 ? 0.5 : 0.005)
  expect(pooled).toBeGreaterThan(1000)
})

test('getSync stays on the event loop, and counts', () => {
  takesMs = STALL_MS
  for (let i = 0; i < 4; i++) expect(lookUps.getSync(KEY)).toBe(VALUE)
  expect(lookUps.areQuick).toBe(false)
})

test('a limit of 0 ms sends all through the thread pool', () => {
  lookUps = new LookUps(engine as unknown as Engine, 0)
  expect(lookUps.areQuick).toBe(false)
  expect(lookUp(5000, 0)).toBe(5000)
})
