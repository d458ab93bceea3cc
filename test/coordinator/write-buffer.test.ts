import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import type { KeyRange } from '../../src/bytes/key-range.js'
import { type MergedScan, type ScanOrder, WriteBuffer, type WritesView } from '../../src/coordinator/write-buffer.js'
import type { Pair, ScanAnswer } from '../../src/percolator/api.js'
import { failureOf, text, utf8 } from '../store/support.js'

interface Write {
  readonly key: string
  /** undefined: deleted. */
  readonly value: string | undefined
}
const COMMIT_TS = 7

function apply(buffer: WriteBuffer, { key, value }: Write): void {
  if (value === undefined) buffer.delete(utf8(key))
  else buffer.put(utf8(key), utf8(value))
}

const contents = (buffer: WriteBuffer): [string, string | undefined][] =>
  buffer
    .mutations()
    .map(({ key, value }): [string, string | undefined] => [text(key), value && text(value)])
    .sort(([a], [b]) => (a < b ? -1 : 1))

// ---- Arbitraries: keys that sort apart as bytes and as UTF-16, few enough to meet

const key = fc.constantFrom('a', 'a\0', 'b', 'c', 'cc', 'd', '\u{ff}', '\u{ffff}', '\u{10000}')
const bound = fc.oneof(fc.constant(undefined), key)
const value = fc.string({ maxLength: 5 })
const writes: fc.Arbitrary<Write[]> = fc.array(fc.record({ key, value: fc.oneof(value, fc.constant(undefined)) }), {
  maxLength: 12,
})
const snapshot = fc.uniqueArray(fc.record({ key, value }), { selector: ({ key }) => key })

// ---- Models

const byBytes = (a: string, b: string): number => Buffer.compare(utf8(a), utf8(b))

interface ModelScan {
  readonly start: string | undefined
  readonly end: string | undefined
  readonly reverse: boolean
}
const isIn = (key: string, { start, end }: ModelScan): boolean =>
  (start === undefined || byBytes(key, start) >= 0) && (end === undefined || byBytes(key, end) < 0)

/** Pairs of the range, in the order of the scan. */
function inOrder<T>(entries: Iterable<[string, T]>, scan: ModelScan): [string, T][] {
  const sorted = [...entries].filter(([key]) => isIn(key, scan)).sort(([a], [b]) => byBytes(a, b))
  return scan.reverse ? sorted.reverse() : sorted
}

/** A store's scan of a snapshot, cut after `cutAt` pairs as a bound on bytes does. */
function scanOf(pairs: readonly { key: string; value: string }[], reverse: boolean, cutAt: number, keyOnly: boolean) {
  return async ({ start, end, limit }: KeyRange & { readonly limit: number }): Promise<ScanAnswer> => {
    const all = inOrder(
      pairs.map(({ key, value }): [string, string] => [key, value]),
      { start: start && text(start), end: end && text(end), reverse },
    )
    const answer = all.slice(0, Math.min(limit, cutAt)).map(
      ([key, value]): Pair => ({
        key: utf8(key),
        ...(keyOnly ? {} : { value: utf8(value) }),
        commitTs: COMMIT_TS,
      }),
    )
    return { pairs: answer, ...(cutAt <= limit && cutAt < all.length ? { isCut: true } : {}) }
  }
}

describe('mergeScan', () => {
  const request = fc.record({
    start: bound,
    end: bound,
    reverse: fc.boolean(),
    keyOnly: fc.boolean(),
    limit: fc.integer({ min: 1, max: 12 }),
    cutAt: fc.oneof(fc.constant(Number.POSITIVE_INFINITY), fc.integer({ min: 1, max: 8 })),
  })

  test('property: the snapshot with the writes in it, as far as it was looked at', { tags: ['long'] }, async () => {
    await fc.assert(
      fc.asyncProperty(snapshot, writes, request, async (stored, written, asked) => {
        const { limit, reverse, keyOnly, cutAt } = asked
        const buffer = new WriteBuffer(1)
        for (const write of written) apply(buffer, write)
        const order: ScanOrder = {
          start: asked.start === undefined ? undefined : utf8(asked.start),
          end: asked.end === undefined ? undefined : utf8(asked.end),
          limit,
          reverse,
          keyOnly,
        }
        const { pairs, cutAfter } = await buffer.mergeScan(order, scanOf(stored, reverse, cutAt, keyOnly))

        const own = new Map(written.map(({ key, value }) => [key, value]))
        const merged = new Map<string, string | undefined>(stored.map(({ key, value }) => [key, value]))
        for (const [key, value] of own) {
          if (value === undefined) merged.delete(key)
          else merged.set(key, value)
        }
        const end = cutAfter && text(cutAfter)
        const isKnown = (key: string): boolean =>
          end === undefined || (reverse ? byBytes(key, end) >= 0 : byBytes(key, end) <= 0)
        const wanted = inOrder(merged, asked)
          .filter(([key]) => isKnown(key))
          .slice(0, limit)
          .map(([key, value]) => ({
            key,
            ...(keyOnly ? {} : { value }),
            ...(own.has(key) ? {} : { commitTs: COMMIT_TS }),
          }))
        expect(
          pairs.map((pair) => ({
            ...pair,
            key: text(pair.key),
            ...(pair.value === undefined ? {} : { value: text(pair.value) }),
          })),
        ).toEqual(wanted)
        // Who goes on behind the last pair, or behind `cutAfter`, comes to the end.
        if (pairs.length < limit && end === undefined) expect(pairs).toHaveLength(inOrder(merged, asked).length)
      }),
      { numRuns: 1000 },
    )
  })

  test('property: a view has the writes of its moment, whatever is written after it', { tags: ['long'] }, async () => {
    await fc.assert(
      fc.asyncProperty(writes, fc.array(writes, { maxLength: 4 }), fc.boolean(), async (before, later, reverse) => {
        const buffer = new WriteBuffer(1)
        for (const write of before) apply(buffer, write)
        const scan = { start: undefined, end: undefined, limit: 100, reverse, keyOnly: false }
        const none = scanOf([], reverse, Number.POSITIVE_INFINITY, false)
        const views = []
        for (const some of [[], ...later]) {
          for (const write of some) apply(buffer, write)
          const view = buffer.view()
          views.push({ view, wanted: (await buffer.mergeScan(scan, none)).pairs })
          if (some.length % 2 === 1) {
            const ended = buffer.view()
            ended.release()
            ended.release()
          }
        }
        for (const write of later.flat()) apply(buffer, { ...write, value: 'later' })
        for (const { view, wanted } of views) expect((await view.mergeScan(scan, none)).pairs).toEqual(wanted)
      }),
      { numRuns: 300 },
    )
  })

  test('property: each of several views has the writes of its moment, whatever is written, undone and released meanwhile', {
    tags: ['long'],
  }, async () => {
    const step = fc.oneof(
      fc.record({ does: fc.constant('write' as const), writes }),
      fc.record({ does: fc.constant('fail' as const), writes }),
      fc.record({ does: fc.constant('view' as const) }),
      fc.record({ does: fc.constant('release' as const), index: fc.nat(5) }),
    )
    await fc.assert(
      fc.asyncProperty(snapshot, fc.array(step, { maxLength: 12 }), fc.boolean(), async (stored, steps, reverse) => {
        const buffer = new WriteBuffer(1)
        const order = { start: undefined, end: undefined, limit: 100, reverse, keyOnly: false }
        const scan = scanOf(stored, reverse, Number.POSITIVE_INFINITY, false)
        const seenBy = async (view: Pick<WriteBuffer, 'mergeScan'>) => (await view.mergeScan(order, scan)).pairs
        const views: { readonly view: WritesView; readonly wanted: MergedScan['pairs'] }[] = []
        for (const each of steps) {
          if (each.does === 'write') for (const write of each.writes) apply(buffer, write)
          else if (each.does === 'view') views.push({ wanted: await seenBy(buffer), view: buffer.view() })
          else if (each.does === 'release') views.splice(each.index, 1)[0]?.view.release()
          else {
            const before = await seenBy(buffer)
            const failing = buffer.atomically(async () => {
              for (const write of each.writes) apply(buffer, write)
              views.push({ wanted: await seenBy(buffer), view: buffer.view() })
              throw new Error('undone')
            })
            await expect(failing).rejects.toThrow('undone')
            expect(await seenBy(buffer)).toEqual(before)
          }
          for (const { view, wanted } of views) expect(await seenBy(view)).toEqual(wanted)
        }
        for (const { view } of views) view.release()
        expect(buffer.viewBytes).toBe(0)
      }),
      { numRuns: 500 },
    )
  })

  test('a write after a view keeps what it replaces, and not all writes; what no view sees is dropped', () => {
    const buffer = new WriteBuffer(1)
    for (let i = 0; i < 5000; i++) buffer.put(utf8(`k${i}`), utf8('value'))
    const first = buffer.view()
    buffer.put(utf8('k7'), utf8('other'))
    expect(buffer.viewBytes).toBeLessThan(200)
    for (let i = 0; i < 5000; i++) {
      const view = buffer.view()
      buffer.put(utf8('k7'), utf8(`value ${i}`))
      view.release()
    }
    expect(buffer.viewBytes).toBeLessThan(1000)
    first.release()
    expect(buffer.viewBytes).toBe(0)
  })

  test('property: page by page, nothing is left out and nothing comes twice', async () => {
    await fc.assert(
      fc.asyncProperty(snapshot, writes, request, async (stored, written, asked) => {
        const { limit, reverse } = asked
        const buffer = new WriteBuffer(1)
        for (const write of written) apply(buffer, write)
        const merged = new Map<string, string | undefined>(stored.map(({ key, value }) => [key, value]))
        for (const { key, value } of written) {
          if (value === undefined) merged.delete(key)
          else merged.set(key, value)
        }
        const seen: string[] = []
        let [start, end]: (string | undefined)[] = [asked.start, asked.end]
        for (let pages = 0; ; pages++) {
          expect(pages).toBeLessThan(30)
          const bounds = {
            start: start === undefined ? undefined : utf8(start),
            end: end === undefined ? undefined : utf8(end),
          }
          const page: MergedScan = await buffer.mergeScan(
            { ...bounds, limit, reverse, keyOnly: false },
            scanOf(stored, reverse, asked.cutAt, false),
          )
          seen.push(...page.pairs.map(({ key }) => text(key)))
          const last = page.cutAfter ?? (page.pairs.length < limit ? undefined : page.pairs.at(-1)?.key)
          if (last === undefined) break
          if (reverse) end = text(last)
          else start = `${text(last)}\0`
        }
        expect(seen).toEqual(inOrder(merged, asked).map(([key]) => key))
      }),
      { numRuns: 500 },
    )
  })

  test.each([false, true])('cut at a key that it wrote: its own value (reverse: %s)', async (reverse) => {
    const buffer = new WriteBuffer(1)
    for (const key of ['a', 'b']) buffer.put(utf8(key), utf8('mine'))
    const order = { limit: 10, reverse, keyOnly: false }
    const key = utf8(reverse ? 'b' : 'a')
    const snapshot = { pairs: [{ key, value: utf8('old'), commitTs: COMMIT_TS }], isCut: true }
    expect(await buffer.mergeScan(order, async () => snapshot)).toEqual({
      pairs: [{ key, value: utf8('mine') }],
      cutAfter: key,
    })
  })
})

test.each([false, true])(
  'thousands of own deletions in the way cost some pages, not thousands (reverse: %s)',
  async (reverse) => {
    const buffer = new WriteBuffer(1)
    const keys = Array.from({ length: 3000 }, (_, i) => String(i).padStart(5, '0'))
    const left = reverse ? '00050' : '02950'
    for (const key of keys) if (key !== left) buffer.delete(utf8(key))
    let pages = 0
    const found = await buffer.mergeScan({ limit: 1, reverse, keyOnly: false }, async ({ start, end, limit }) => {
      pages++
      const inRange = keys.filter((key) => (!start || key >= text(start)) && (!end || key < text(end)))
      const ordered = reverse ? inRange.reverse() : inRange
      return {
        pairs: ordered.slice(0, limit).map((key) => ({ key: utf8(key), value: utf8(key), commitTs: COMMIT_TS })),
      }
    })
    expect(found.pairs.map(({ key }) => text(key))).toEqual([left])
    expect(pages).toBeLessThan(20)
  },
)

describe('bytes', () => {
  test('property: keys and values of the last write of each key', () => {
    fc.assert(
      fc.property(writes, (written) => {
        const buffer = new WriteBuffer(1)
        const model = new Map<string, string | undefined>()
        for (const write of written) {
          apply(buffer, write)
          model.set(write.key, write.value)
          const bytes = [...model].reduce((sum, [key, value]) => sum + utf8(key).length + utf8(value ?? '').length, 0)
          expect([buffer.size, buffer.bytes]).toEqual([model.size, bytes])
        }
        for (const [key, value] of model) {
          const found = buffer.get(utf8(key))
          expect(found?.value && text(found.value)).toBe(value === '' ? found?.value && '' : value)
          expect(found).toBeDefined()
        }
        expect(contents(buffer)).toEqual([...model].sort(([a], [b]) => (a < b ? -1 : 1)))
      }),
    )
  })

  test('a write over the bound is refused, and changes nothing', async () => {
    const buffer = new WriteBuffer(1, 10)
    buffer.put(utf8('a'), utf8('12345'))
    buffer.put(utf8('b'), utf8('123'))
    expect(buffer.bytes).toBe(10)
    for (const write of [
      () => buffer.put(utf8('c'), utf8('')),
      () => buffer.delete(utf8('c')),
      () => buffer.put(utf8('a'), utf8('123456')),
    ]) {
      const error = await failureOf(Promise.resolve().then(write))
      expect(error).toMatchObject({ code: 'payload_too_large', fields: { field: 'value', limit: 10 } })
    }
    expect(contents(buffer)).toEqual([
      ['a', '12345'],
      ['b', '123'],
    ])
    buffer.put(utf8('a'), utf8('54321')) // What it replaces does not count.
    buffer.delete(utf8('a'))
    expect(buffer.bytes).toBe(5)
    buffer.put(utf8('c'), utf8('1234'))
    expect(buffer.bytes).toBe(10)
  })
})

describe('atomically', () => {
  test('property: all of it or none of it', async () => {
    await fc.assert(
      fc.asyncProperty(writes, writes, writes, fc.boolean(), async (before, inside, after, fails) => {
        const buffer = new WriteBuffer(1)
        const model = new WriteBuffer(1)
        for (const write of before) for (const each of [buffer, model]) apply(each, write)
        const failure = new Error('no')
        const run = buffer.atomically(async () => {
          for (const write of inside) {
            await Promise.resolve()
            apply(buffer, write)
          }
          if (fails) throw failure
          return inside.length
        })
        if (fails) await expect(run).rejects.toBe(failure)
        else {
          expect(await run).toBe(inside.length)
          for (const write of inside) apply(model, write)
        }
        expect([contents(buffer), buffer.bytes, buffer.size]).toEqual([contents(model), model.bytes, model.size])
        // It is over: later writes stand on their own.
        for (const write of after) for (const each of [buffer, model]) apply(each, write)
        expect([contents(buffer), buffer.bytes]).toEqual([contents(model), model.bytes])
      }),
    )
  })

  test('a write that is refused for its size takes those before it back', async () => {
    const buffer = new WriteBuffer(1, 6)
    buffer.put(utf8('a'), utf8('old'))
    const run = buffer.atomically(async () => {
      buffer.delete(utf8('a'))
      buffer.put(utf8('b'), utf8('new'))
      buffer.put(utf8('c'), utf8('new'))
    })
    expect(await failureOf(run)).toMatchObject({ code: 'payload_too_large' })
    expect(contents(buffer)).toEqual([['a', 'old']])
    expect(buffer.bytes).toBe(4)
  })
})
