import fc from 'fast-check'
import { beforeEach, describe, expect, test } from 'vitest'
import type { GetAnswer } from '../../../../src/percolator/api.js'
import { type CachedVersion, VersionCache } from '../../../../src/store/leveldb/memory/version-cache.js'
import { CF_DEFAULT, CF_NEWEST, newestKey } from '../../../../src/store/leveldb/records/keyspace.js'
import type { CompleteStore } from '../../../../src/store/store.js'
import {
  atOnce,
  codeOf,
  type Deferred,
  deferred,
  del,
  EngineFailure,
  prewriteOf,
  put,
  read,
  TappedEngine,
  testStores,
  text,
  turn,
  utf8,
  watch,
  write,
} from '../../support.js'

const [a, b] = ['a', 'b'].map(utf8) as [Buffer, Buffer]
const LONG = 'x'.repeat(300)
const version = (value: string | undefined, commitTs: number): CachedVersion => ({
  value: value === undefined ? undefined : utf8(value),
  commitTs,
  expireTs: 0,
  leaseFence: 0,
})

describe('entries', () => {
  function cached(...keys: Buffer[]): VersionCache {
    const cache = new VersionCache(10_000)
    for (const key of keys) cache.endFill(key, cache.beginFill(key), version('old', 5))
    return cache
  }

  test('what is suspended answers nothing, until it is renewed', () => {
    const cache = cached(a, b)
    cache.suspend(a)
    expect([cache.get(a), cache.get(b)]).toEqual([undefined, version('old', 5)])
    cache.renew(a, version('new', 6))
    expect(cache.get(a)).toEqual(version('new', 6))
    cache.renew(a, version(undefined, 7))
    expect(cache.get(a)).toEqual(version(undefined, 7))
  })

  test('what was not there is not there afterwards: a write is no read', () => {
    const cache = cached(b)
    cache.suspend(a)
    cache.renew(a, version('new', 6))
    expect(cache.get(a)).toBeUndefined()
  })

  test('what was forgotten meanwhile stays so', () => {
    for (const disturb of [(cache: VersionCache) => cache.forget(a), (cache: VersionCache) => cache.clear()]) {
      const cache = cached(a)
      cache.suspend(a)
      disturb(cache)
      cache.renew(a, version('new', 6))
      expect(cache.get(a)).toBeUndefined()
    }
  })

  test('a fill is lost to a suspend and to a renew, with the key there or not', () => {
    for (const cache of [cached(), cached(a), cached(b)]) {
      for (const disturb of [() => cache.suspend(a), () => cache.renew(a, version('new', 6))]) {
        const fill = cache.beginFill(a)
        disturb()
        cache.endFill(a, fill, version('stale', 5))
        expect(cache.get(a)?.value).not.toEqual(utf8('stale'))
      }
    }
  })

  test('a fill that began while the key was suspended counts, until the writer is done', () => {
    const cache = cached(a)
    cache.suspend(a)
    const fill = cache.beginFill(a)
    cache.endFill(a, fill, version('old', 5))
    expect(cache.get(a)).toEqual(version('old', 5))
    cache.renew(a, version('new', 6))
    expect(cache.get(a)).toEqual(version('new', 6))
  })

  test('renewals stay within the bytes, and those that are suspended can be evicted too', () => {
    const size = 300 + 1 + 10
    const cache = new VersionCache(2 * size) // One in each generation.
    const ten = 'x'.repeat(10)
    const fill = (key: Buffer) => cache.endFill(key, cache.beginFill(key), version(ten, 5))
    const [c, d] = [utf8('c'), utf8('d')]
    for (const key of [a, b]) fill(key)
    cache.suspend(a)
    for (const key of [c, d]) fill(key)
    cache.renew(a, version('new', 6))
    expect([a, b, c, d].map((key) => cache.get(key)?.commitTs)).toEqual([undefined, undefined, 5, 5])
    cache.suspend(c)
    cache.renew(c, version(LONG, 7)) // Too large now.
    expect([cache.get(c), cache.get(d)?.commitTs]).toEqual([undefined, 5])
    for (const key of [a, b]) fill(key) // Its bytes are free again.
    expect([cache.get(a)?.commitTs, cache.get(b)?.commitTs]).toEqual([5, 5])
  })

  test('property: it says what the engine has, or nothing; and nothing while a write is on its way', () => {
    const keys = [a, b]
    const step = fc.record({
      key: fc.nat(1),
      act: fc.constantFrom('begin fill', 'read', 'end fill', 'write', 'land', 'renew', 'forget', 'fail', 'evict'),
    })
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
        const cache = new VersionCache(2000)
        let serial = 1
        const state = keys.map(() => ({
          engine: version('1', 1),
          /** What a write on its way puts there; whether it has landed. */
          writing: undefined as CachedVersion | undefined,
          hasLanded: false,
          fill: undefined as symbol | undefined,
          filled: undefined as CachedVersion | undefined,
        }))
        for (const { key, act } of steps) {
          const at = state[key] as (typeof state)[number]
          const k = keys[key] as Buffer
          if (act === 'begin fill' && at.writing === undefined) {
            at.fill = cache.beginFill(k)
            at.filled = undefined
          } else if (act === 'read' && at.fill !== undefined) at.filled ??= at.engine
          else if (act === 'end fill' && at.fill !== undefined && at.filled !== undefined) {
            cache.endFill(k, at.fill, at.filled)
            at.fill = undefined
          } else if (act === 'write' && at.writing === undefined) {
            at.writing = version(serial % 3 === 0 ? undefined : String(serial), ++serial)
            at.hasLanded = false
            cache.suspend(k)
          } else if (act === 'land' && at.writing !== undefined) {
            at.engine = at.writing
            at.hasLanded = true
          } else if (act === 'renew' && at.writing !== undefined && at.hasLanded) {
            cache.renew(k, at.writing)
            at.writing = undefined
          } else if (act === 'forget' && at.writing !== undefined && at.hasLanded) {
            cache.forget(k)
            at.writing = undefined
          } else if (act === 'fail' && at.writing !== undefined) {
            cache.clear()
            at.writing = undefined
          } else if (act === 'evict') {
            const other = utf8(`other ${serial++}`)
            cache.endFill(other, cache.beginFill(other), version('x'.repeat(700), 1))
          }
          for (const [i, { engine, writing }] of state.entries()) {
            const said = cache.get(keys[i] as Buffer)
            if (said !== undefined) expect([said, writing]).toEqual([engine, undefined])
          }
        }
      }),
      { numRuns: 500 },
    )
  })
})

const stores = testStores()
let tapped: TappedEngine
let store: CompleteStore
interface HeldRead {
  readonly isMeant: (key: Buffer | undefined) => boolean
  /** LevelDB is asked afterwards; otherwise its answer is held. */
  readonly isBefore: boolean
  readonly arrived: Deferred
  readonly goOn: Deferred
}
let heldRead: HeldRead | undefined

/** @param lookUpSlowMs 0, the default: the engine's answers can be held, and `known` answers from the cache alone. */
async function openStore(cacheBytesMax?: number, lookUpSlowMs = 0): Promise<void> {
  tapped = new TappedEngine()
  heldRead = undefined
  const heldOr = async <T>(key: Buffer | undefined, ask: () => Promise<T>): Promise<T> => {
    const held = heldRead
    if (held === undefined || !held.isMeant(key)) return ask()
    heldRead = undefined // The next read passes.
    const before = held.isBefore ? undefined : { said: await ask() }
    held.arrived.resolve()
    await held.goOn.promise
    return before === undefined ? ask() : before.said
  }
  store = await stores.open({
    ...(cacheBytesMax === undefined ? {} : { cacheBytesMax }),
    lookUpSlowMs,
    openEngine: async (directory) => {
      const engine = await tapped.open(directory)
      return {
        ...engine,
        get: (key) => heldOr(key, () => engine.get(key)),
        getMany: (keys) => heldOr(keys[0], () => engine.getMany(keys)),
      }
    },
  })
}

function holdRead(isMeant: HeldRead['isMeant'], isBefore = false): { arrived: Promise<void>; release: () => void } {
  heldRead = { isMeant, isBefore, arrived: deferred(), goOn: deferred() }
  return { arrived: heldRead.arrived.promise, release: heldRead.goOn.resolve }
}

const isNewest = (key: Buffer | undefined): boolean => key?.[0] === CF_NEWEST
const isValue = (key: Buffer | undefined): boolean => key?.[0] === CF_DEFAULT

/** In one moment, without waiting. */
const known = (key: Buffer): string | undefined => shown(atOnce(store.get({ key })))
const shown = (answer: GetAnswer | undefined): string | undefined =>
  answer === undefined ? undefined : answer.found ? text(answer.value) : 'absent'
const readBoth = async (): Promise<(string | undefined)[]> => {
  const { pairs } = await store.batchGet({ keys: [a, b] })
  return [a, b].map((key) => {
    const pair = pairs.find((found) => key.equals(found.key))
    return pair?.value === undefined ? 'absent' : text(pair.value)
  })
}
const cacheBoth = async (): Promise<void> => {
  await read(store, 'a')
  await read(store, 'b')
  expect([known(a), known(b)]).not.toContain(undefined)
}

const MUTATIONS = {
  'a short value': [put('a', 'new'), put('b', 'new')],
  'a long value': [put('a', LONG), put('b', LONG)],
  'a deletion': [del('a'), del('b')],
}
type Kind = keyof typeof MUTATIONS
const NEW: Record<Kind, string> = { 'a short value': 'new', 'a long value': LONG, 'a deletion': 'absent' }
const KINDS = Object.keys(MUTATIONS) as Kind[]

const WRITERS = ['1PC', 'commit', 'resolve_lock', 'exclusive'] as const
type Writer = (typeof WRITERS)[number]

/** @returns the call whose batch makes the change visible. */
async function prepared(writer: Writer, kind: Kind): Promise<() => Promise<unknown>> {
  const mutations = MUTATIONS[kind]
  const onePc = prewriteOf(10, mutations, { tryOnePc: true })
  if (writer === '1PC') return () => store.prewrite(onePc)
  if (writer === 'exclusive')
    return () => store.exclusive({ written: ['a', 'b'], read: [], isAlone: false }, (prewrite) => prewrite(onePc))
  await store.prewrite(prewriteOf(10, mutations))
  if (writer === 'commit') return () => store.commit({ keys: [a, b], startTs: 10, commitTs: 11 })
  return () => store.resolveLock({ txns: [{ startTs: 10, commitTs: 11 }] })
}

describe.each(WRITERS)('around the batch of a %s', (writer) => {
  beforeEach(async () => {
    await openStore()
    await write(store, 5, 6, [put('a', 'old'), put('b', 'old')])
  })

  test.each(KINDS)('%s: a reader sees both keys old or both new, and new once that was answered', async (kind) => {
    await cacheBoth()
    const change = await prepared(writer, kind)
    const is1pc = writer === '1PC' || writer === 'exclusive'
    const moments: (readonly [string | undefined, string | undefined, string | undefined])[] = []
    const look = async (): Promise<void> => {
      moments.push([known(a), known(b), await read(store, 'a')])
      if (is1pc) moments.push([undefined, undefined, ...new Set(await readBoth())] as never)
    }
    tapped.onWrite = async (_, land) => {
      await look()
      await land()
      await look()
    }
    const call = watch(change())
    expect(call.isSettled()).toBe(false)
    await call.promise
    expect([known(a), known(b)].every((said) => said === undefined || said === NEW[kind])).toBe(true)
    expect(await readBoth()).toEqual([NEW[kind], NEW[kind]])
    const wanted = NEW[kind] === 'absent' ? undefined : NEW[kind]
    expect(moments.map(([, , latest]) => (latest === 'absent' ? undefined : latest))).toEqual(
      is1pc ? ['old', 'old', wanted, wanted] : ['old', wanted],
    )
    for (const [first, second] of moments) expect([first, second]).toEqual([undefined, undefined])
    expect([await read(store, 'a'), await read(store, 'b')]).toEqual([wanted, wanted])
    expect([await read(store, 'a', 9), await read(store, 'a', 9)]).toEqual(['old', 'old'])
  })

  test.each(['a short value', 'a deletion'] as const)('%s: what was in memory is there again at once', async (kind) => {
    await read(store, 'a')
    await (await prepared(writer, kind))()
    expect([known(a), known(b)]).toEqual([NEW[kind], undefined])
  })

  test.each(KINDS)('%s: a fill that LevelDB answered before the write does not outlive it', async (kind) => {
    const held = holdRead(isNewest)
    const reader = read(store, 'a')
    await held.arrived
    await (await prepared(writer, kind))()
    held.release()
    expect(await reader).toBe('old') // It began before.
    expect([undefined, NEW[kind]]).toContain(known(a))
    expect([await read(store, 'a'), await read(store, 'a')]).toEqual(
      NEW[kind] === 'absent' ? [undefined, undefined] : [NEW[kind], NEW[kind]],
    )
  })

  test.each(['fails', 'lands but reports failure'] as const)('a batch that %s leaves nothing old', async (how) => {
    await cacheBoth()
    const change = await prepared(writer, 'a short value')
    tapped.onWrite = async (_, land) => {
      tapped.onWrite = (_next, landNext) => landNext()
      if (how !== 'fails') await land()
      throw new EngineFailure('disk full')
    }
    expect(await codeOf(change())).toBe('storage_unavailable')
    await tapped.quiet()
    expect([known(a), known(b)]).toEqual([undefined, undefined])
    const isLocked = how === 'fails' && (writer === 'commit' || writer === 'resolve_lock')
    const want = how === 'fails' ? 'old' : 'new'
    expect([await read(store, 'a'), known(a)]).toEqual([want, isLocked ? undefined : want])
    if (!isLocked) expect(await readBoth()).toEqual([want, want])
  })
})

describe('single cases', () => {
  beforeEach(async () => {
    await openStore()
    await write(store, 5, 6, [put('a', 'old'), put('b', 'old')])
  })

  test('a fill whose long value comes after the write that replaces it', async () => {
    await write(store, 7, 8, [put('a', LONG)])
    const held = holdRead(isValue)
    const reader = read(store, 'a')
    await held.arrived
    await write(store, 10, 11, [put('a', 'new')])
    held.release()
    expect(await reader).toBe(LONG)
    expect([undefined, 'new']).toContain(known(a))
    expect(await read(store, 'a')).toBe('new')
  })

  test('a fill of absence', async () => {
    const c = utf8('c')
    const held = holdRead(isNewest)
    const reader = read(store, 'c')
    await held.arrived
    await write(store, 10, 11, [put('c', 'new')])
    held.release()
    expect(await reader).toBeUndefined()
    expect([undefined, 'new']).toContain(known(c))
    expect(await read(store, 'c')).toBe('new')
  })

  test('a 1PC whose reads did not hold changes nothing, and its keys can be cached again', async () => {
    await cacheBoth()
    await write(store, 20, 21, [put('read')])
    const refused = prewriteOf(15, [put('a', 'new')], {
      tryOnePc: true,
      minCommitTs: 30,
      reads: { keys: [utf8('read')], ranges: [] },
    })
    expect(await codeOf(store.prewrite(refused))).toBe('write_conflict')
    expect([undefined, 'old']).toContain(known(a))
    expect([await read(store, 'a'), known(a)]).toEqual(['old', 'old'])
    await write(store, 40, 41, [put('a', 'new')])
    expect([await read(store, 'a'), known(a)]).toEqual(['new', 'new'])
  })

  test.each([
    ['a Lock record', () => write(store, 30, 31, [{ op: 'lock', key: a }])],
    ['a Lock record by 1PC', () => store.prewrite(prewriteOf(30, [{ op: 'lock', key: a }], { tryOnePc: true }))],
    ['a Rollback record', () => store.rollback({ keys: [a], startTs: 30 })],
    ['a rollback where the Put stands', () => store.cleanup({ key: a, startTs: 6, currentTs: 0 })],
  ])('%s changes no answer', async (_, act) => {
    await cacheBoth()
    await act()
    expect([undefined, 'old']).toContain(known(a))
    expect([await read(store, 'a'), known(a), await read(store, 'a', 5)]).toEqual(['old', 'old', undefined])
  })

  test('a collected deletion, and a removed range', async () => {
    await write(store, 10, 11, [del('a')])
    expect([await read(store, 'a'), known(a)]).toEqual([undefined, 'absent'])
    await store.upkeep.collect(20)
    expect([await read(store, 'a'), known(a)]).toEqual([undefined, 'absent'])
    expect([await read(store, 'b'), known(b)]).toEqual(['old', 'old'])
    tapped.onWrite = async (_, land) => {
      expect(known(b)).toBeUndefined()
      expect(await read(store, 'b')).toBe('old') // Which must not stay in memory.
      await land()
    }
    await store.deleteRange({ start: b, end: utf8('c') })
    expect(known(b)).toBeUndefined()
    expect([await read(store, 'b'), known(b)]).toEqual([undefined, 'absent'])
  })

  test('a read whose version is collected meanwhile is refused', async () => {
    await write(store, 10, 11, [put('a', 'new')])
    const held = holdRead(isNewest)
    const reader = codeOf(read(store, 'a', 8))
    await held.arrived
    await store.upkeep.collect(20)
    held.release()
    expect(await reader).toBe('ts_below_safe_point')
  })

  test('memory says nothing that a read has to wait for, or is refused', async () => {
    await cacheBoth()
    await store.get({ key: utf8('other'), ts: 50 })
    expect(shown(atOnce(store.get({ key: a, ts: 50 })))).toBe('old')
    expect(atOnce(store.get({ key: a, ts: 5 }))).toBeUndefined() // Before the version that is known.
    await store.prewrite(prewriteOf(45, [put('a', 'new'), put('b', 'new')]))
    expect(shown(atOnce(store.get({ key: a, ts: 44 })))).toBe('old')
    expect(atOnce(store.get({ key: a, ts: 50 }))).toBeUndefined()
    expect(known(a)).toBe('old') // The primary: not committed while its lock stands.
    expect(known(b)).toBeUndefined()
    await store.commit({ keys: [a, b], startTs: 45, commitTs: 46 })
    await store.upkeep.raiseSafePoint(48)
    expect(atOnce(store.get({ key: a, ts: 47 }))).toBeUndefined()
    expect(shown(atOnce(store.get({ key: a, ts: 48 })))).toBe('new')
  })

  test('memory says nothing while the database is opened again', async () => {
    await cacheBoth()
    tapped.onWrite = async () => {
      throw new EngineFailure('disk full')
    }
    let during: string | undefined = 'not opened again'
    tapped.onReopen = async (reopen) => {
      during = known(b)
      await reopen()
    }
    await codeOf(store.prewrite(prewriteOf(10, [put('a', 'new')], { tryOnePc: true })))
    expect(during).toBeUndefined()
  })

  test('a key that is evicted while it is written', async () => {
    await openStore(700)
    await write(store, 5, 6, [put('a', 'old'), put('b', 'old')])
    await read(store, 'a')
    tapped.onWrite = async (_, land) => {
      tapped.onWrite = (_next, landNext) => landNext()
      for (let i = 0; i < 5; i++) await read(store, `other${i}`)
      await land()
    }
    await store.prewrite(prewriteOf(10, [put('a', 'new')], { tryOnePc: true }))
    expect(known(a)).toBeUndefined()
    expect([await read(store, 'a'), known(a)]).toEqual(['new', 'new'])
  })

  test('a range that is removed while its values are read is not a damaged one', async () => {
    await write(store, 7, 8, [put('a', LONG)])
    const held = holdRead(isNewest)
    const reading = store.batchGet({ keys: [a], ts: 10 })
    await Promise.race([held.arrived, reading])
    await store.deleteRange({ start: a, end: b })
    held.release()
    expect(((await reading).pairs[0]?.value ?? '').length).toBeOneOf([0, LONG.length])
  })

  test.each([
    ['of the future', 2 ** 53 - 2],
    ['of the past', 50],
  ])('a batch_get at a timestamp %s sees both keys of a transaction or none', async (_, ts) => {
    const held = holdRead((key) => key?.equals(newestKey(b)) === true, true)
    const reading = store.batchGet({ keys: [a, b], ts })
    await Promise.race([held.arrived, reading])
    const startTs = await store.tso(1)
    await write(store, startTs, await store.tso(1), [put('a', 'new'), put('b', 'new')])
    held.release()
    expect(new Set((await reading).pairs.map(({ value }) => value && text(value))).size).toBe(1)
  })

  test('what is kept of a small value is small', async () => {
    await cacheBoth()
    const request = Buffer.alloc(1_000_000)
    await store.prewrite(prewriteOf(10, [put('a', request.subarray(0, 5))], { tryOnePc: true }))
    const answer = atOnce(store.get({ key: a }))
    expect(answer?.found).toBe(true)
    expect(answer?.found && answer.value.buffer.byteLength).toBeLessThan(1000)
  })
})

test('property: nobody reads what was replaced before the read began, nor one key of two', {
  tags: ['long'],
}, async () => {
  const shape = fc.record({
    cacheBytesMax: fc.constantFrom(0, 350, 1_000_000),
    lookUpSlowMs: fc.constantFrom(0, Number.POSITIVE_INFINITY),
    writes: fc.array(
      fc.record({
        kind: fc.constantFrom('short', 'short', 'long', 'delete'),
        writer: fc.constantFrom('1PC', 'commit'),
        breaks: fc.constantFrom(undefined, undefined, undefined, undefined, 'fails', 'lands'),
        turnsBefore: fc.nat(2),
      }),
      { minLength: 5, maxLength: 25, size: 'max' },
    ),
    readers: fc.array(
      fc.array(fc.tuple(fc.constantFrom('known', 'known at', 'get', 'both', 'get b'), fc.nat(2)), { minLength: 1 }),
      {
        minLength: 1,
        maxLength: 4,
      },
    ),
  })
  await fc.assert(
    fc.asyncProperty(shape, async ({ cacheBytesMax, lookUpSlowMs, writes, readers }) => {
      await openStore(cacheBytesMax, lookUpSlowMs)
      // The number of each write is its value; a deletion's stands for absence.
      const deletions = new Set([0])
      let started = 0
      let answered = 0
      let isDone = false
      const expectFresh = (said: string, since: number): void => {
        if (said === 'absent') {
          expect([...deletions].some((serial) => serial >= since && serial <= started)).toBe(true)
          return
        }
        expect(Number(said.replaceAll('x', ''))).toBeGreaterThanOrEqual(since)
      }
      const reader = async (acts: (typeof readers)[number]): Promise<void> => {
        for (let i = 0; !isDone; i++) {
          const [act, turns] = acts[i % acts.length] as (typeof acts)[number]
          for (let t = 0; t <= turns; t++) await turn()
          const since = answered
          if (act === 'known' || act === 'known at') {
            const ts = act === 'known' ? undefined : await Promise.resolve(store.tso(1)).catch(() => undefined)
            const [first, second] = [shown(atOnce(store.get({ key: a, ts }))), shown(atOnce(store.get({ key: b, ts })))]
            // A write may land between two look-ups of the latest version.
            const isOneMoment = ts !== undefined || lookUpSlowMs === 0
            if (isOneMoment && first !== undefined && second !== undefined) expect(first).toBe(second)
            for (const said of [first, second]) if (said !== undefined) expectFresh(said, since)
            continue
          }
          try {
            if (act === 'both') {
              const [first, second] = (await readBoth()) as [string, string]
              expect(first).toBe(second)
              expectFresh(first, since)
            } else {
              const said = await read(store, act === 'get' ? 'a' : 'b')
              expectFresh(said ?? 'absent', since)
            }
          } catch (error) {
            const code = await codeOf(Promise.reject(error))
            expect(['key_locked', 'storage_unavailable']).toContain(code)
          }
        }
      }
      const writer = async (): Promise<void> => {
        for (const { kind, writer: how, breaks, turnsBefore } of writes) {
          for (let t = 0; t < turnsBefore; t++) await turn()
          const serial = ++started
          if (kind === 'delete') deletions.add(serial)
          const mutationOf = (key: string) =>
            kind === 'delete' ? del(key) : put(key, `${kind === 'long' ? LONG : ''}${serial}`)
          const startTs = await store.tso(1)
          const request = prewriteOf(startTs, [mutationOf('a'), mutationOf('b')], { linearizable: true })
          const keys = [a, b]
          if (how === 'commit') await store.prewrite(request)
          if (breaks !== undefined)
            tapped.onWrite = async (_, land) => {
              tapped.onWrite = (_next, landNext) => landNext()
              if (breaks === 'lands') await land()
              throw new EngineFailure('disk full')
            }
          const change = async () =>
            how === 'commit'
              ? store.commit({ keys, startTs, commitTs: await store.tso(1) })
              : store.prewrite({ ...request, tryOnePc: true })
          if ((await codeOf(change())) !== 'none') {
            while (!store.upkeep.probe()) await turn()
            expect(await codeOf(change())).toBe('none')
          }
          answered = serial
        }
      }
      const writing = writer().finally(() => {
        isDone = true
      })
      const ended = await Promise.allSettled([writing, ...readers.map(reader)])
      await store.close()
      for (const end of ended) if (end.status === 'rejected') throw end.reason
    }),
    { numRuns: 12, interruptAfterTimeLimit: 20_000 }, // Shrinking takes long.
  )
})
