import fc from 'fast-check'
import { expect, test } from 'vitest'
import { Latches } from '../../src/store/latches.js'
import { codeOf, type Deferred, deferred, prewriteOf, put, testStores, turn, utf8, watch } from './support.js'

const stores = testStores()

/** Holds that last until the test ends them; who has begun, in order. */
class Holds {
  readonly latches = new Latches()
  readonly begun: string[] = []
  readonly #ends = new Map<string, Deferred>()

  start(name: string, alone: readonly string[], shared: readonly string[] = []): void {
    const end = deferred()
    this.#ends.set(name, end)
    void this.latches.hold(
      alone,
      () => {
        this.begun.push(name)
        return end.promise
      },
      shared,
    )
  }

  async end(...names: string[]): Promise<void> {
    for (const name of names) this.#ends.get(name)?.resolve()
    await turn()
  }
}

test('all that share a key run together', async () => {
  const holds = new Holds()
  for (const name of ['one', 'two', 'three']) holds.start(name, [], ['k'])
  await turn()
  expect(holds.begun).toEqual(['one', 'two', 'three'])
})

test('one that is alone waits for all of them, whichever ends last', async () => {
  for (const order of [
    ['one', 'two', 'three'],
    ['three', 'one', 'two'],
  ]) {
    const holds = new Holds()
    for (const name of ['one', 'two', 'three']) holds.start(name, [], ['k'])
    holds.start('alone', ['k'])
    for (const name of order) {
      await turn()
      expect(holds.begun).not.toContain('alone')
      await holds.end(name)
    }
    expect(holds.begun.at(-1)).toBe('alone')
  }
})

test('none that shares passes one that waits alone: writers do not starve', async () => {
  const holds = new Holds()
  holds.start('reader', [], ['k'])
  holds.start('writer', ['k'])
  holds.start('late', [], ['k'])
  holds.start('later', [], ['k'])
  await turn()
  expect(holds.begun).toEqual(['reader'])
  await holds.end('reader')
  expect(holds.begun).toEqual(['reader', 'writer'])
  await holds.end('writer')
  expect(holds.begun).toEqual(['reader', 'writer', 'late', 'later'])
})

test('a group that shares ends before the next one that is alone', async () => {
  const holds = new Holds()
  for (const [name, isShared] of [
    ['w1', false],
    ['r1', true],
    ['r2', true],
    ['w2', false],
    ['r3', true],
    ['w3', false],
  ] as const)
    holds.start(name, isShared ? [] : ['k'], isShared ? ['k'] : [])
  await holds.end('w1')
  expect(holds.begun).toEqual(['w1', 'r1', 'r2'])
  await holds.end('r2')
  expect(holds.begun).toHaveLength(3)
  await holds.end('r1')
  expect(holds.begun.slice(3)).toEqual(['w2'])
  await holds.end('w2')
  expect(holds.begun.slice(4)).toEqual(['r3'])
  await holds.end('r3')
  expect(holds.begun.slice(5)).toEqual(['w3'])
})

test('a holder that came to a free key shares it only if it said so', async () => {
  const holds = new Holds()
  holds.start('writer', ['k'])
  holds.start('reader', [], ['k'])
  await turn()
  expect(holds.begun).toEqual(['writer'])
  await holds.end('writer')
  holds.start('another', [], ['k'])
  await turn()
  expect(holds.begun).toEqual(['writer', 'reader', 'another'])
})

test('after a group that shared the key is free again, for one alone', async () => {
  const holds = new Holds()
  holds.start('one', [], ['k'])
  holds.start('two', [], ['k'])
  await holds.end('one', 'two')
  holds.start('writer', ['k'])
  holds.start('three', [], ['k'])
  await turn()
  expect(holds.begun).toEqual(['one', 'two', 'writer'])
})

test('who waits on one key holds its shared place on another', async () => {
  const holds = new Holds()
  holds.start('a', ['a'])
  holds.start('mixed', ['a'], ['b'])
  holds.start('writes b', ['b'])
  await turn()
  expect(holds.begun).toEqual(['a'])
  await holds.end('a')
  expect(holds.begun).toEqual(['a', 'mixed'])
  await holds.end('mixed')
  expect(holds.begun).toEqual(['a', 'mixed', 'writes b'])
})

test('a body that fails lets shared keys go', async () => {
  const latches = new Latches()
  const failing = latches.hold([], () => Promise.reject(new Error('on purpose')), ['k'])
  const next = watch(latches.hold(['k'], async () => 'fine'))
  await expect(failing).rejects.toThrow('on purpose')
  expect(await next.promise).toBe('fine')
})

test('exclusive: bodies that only read a key run together, and its writer waits for both', async () => {
  const store = await stores.open()
  const ends = [deferred(), deferred()]
  let running = 0
  const bodies = ends.map((end, i) =>
    store.exclusive({ written: [`written by ${i}`], read: ['shared'], isAlone: false }, async () => {
      running++
      await end.promise
    }),
  )
  const order: string[] = []
  const writer = store.exclusive({ written: ['shared'], read: [], isAlone: false }, async (prewrite) => {
    order.push('writer')
    return prewrite(prewriteOf(10, [put('shared')], { tryOnePc: true }))
  })
  const outside = watch(codeOf(store.prewrite(prewriteOf(20, [put('shared')], { tryOnePc: true }))))
  for (const [i, end] of ends.entries()) {
    await turn()
    expect([running, order]).toEqual([2, []])
    end.resolve()
    await bodies[i]
  }
  await writer
  expect(await outside.promise).toBe('none')
  expect((await store.get({ key: utf8('shared') })).found).toBe(true)
})

interface Asked {
  readonly alone: readonly string[]
  readonly shared: readonly string[]
}

/** Who may run: whoever comes after no one on any key that it can't share with. */
function mayRun(asked: readonly Asked[], isOver: ReadonlySet<number>, id: number): boolean {
  const { alone, shared } = asked[id] as Asked
  return asked.slice(0, id).every((before, earlier) => {
    if (isOver.has(earlier)) return true
    const clashes = (key: string) => before.alone.includes(key) || before.shared.includes(key)
    return !alone.some(clashes) && !shared.some((key) => before.alone.includes(key))
  })
}

test('property: at every moment those run, and only those, that no earlier one stands in the way of', async () => {
  const asked = fc
    .uniqueArray(fc.tuple(fc.constantFrom('a', 'b', 'c'), fc.boolean()), { selector: ([key]) => key, maxLength: 3 })
    .map(
      (keys): Asked => ({
        alone: keys.flatMap(([key, isShared]) => (isShared ? [] : [key])),
        shared: keys.flatMap(([key, isShared]) => (isShared ? [key] : [])),
      }),
    )
  // A number: one of those that run then ends.
  const step = fc.oneof({ weight: 3, arbitrary: asked }, { weight: 2, arbitrary: fc.nat(9) })
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 30 }), async (steps) => {
      const holds = new Holds()
      const all: Asked[] = []
      const isOver = new Set<number>()
      const running = (): number[] => holds.begun.map(Number).filter((id) => !isOver.has(id))
      const check = (): void => {
        const want = all.flatMap((_, id) => (!isOver.has(id) && mayRun(all, isOver, id) ? [id] : []))
        expect(running().sort((x, y) => x - y)).toEqual(want)
      }
      const end = async (id: number): Promise<void> => {
        isOver.add(id)
        await holds.end(String(id))
      }
      for (const next of steps) {
        if (typeof next === 'number') {
          const ids = running()
          if (ids.length === 0) continue
          await end(ids[next % ids.length] as number)
        } else {
          holds.start(String(all.length), next.alone, next.shared)
          all.push(next)
          await turn()
        }
        check()
      }
      for (let ids = running(); ids.length > 0; ids = running()) {
        await end(ids[0] as number)
        check()
      }
      expect(isOver.size).toBe(all.length)
    }),
    { numRuns: 150 },
  )
})
