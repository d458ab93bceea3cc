import { describe, expect, test } from 'vitest'
import { type Db, KvError, type OpenTxn, type Txn, Undetermined } from '../../src/client/index.js'
import { collect, connectTo, failureOf } from '../coordinator/support.js'
import { listOf, testServers } from '../http/support.js'
import { utf8 } from '../store/support.js'
import { BACKENDS, testDbs } from './backends.js'
import { FaultyNetwork } from './http/faulty-fetch.js'

const MODES = ['optimistic', 'pessimistic'] as const

/** Where so many meet; whoever comes later goes on. */
function meeting(count: number): () => Promise<void> {
  let come = 0
  let open: (() => void) | undefined
  const all = new Promise<void>((resolve) => {
    open = resolve
  })
  return () => {
    if (++come === count) open?.()
    return all
  }
}

/** Runs something in the middle of a transaction, the first time only. */
function once(run: () => Promise<unknown>): () => Promise<unknown> {
  let isDone = false
  return async () => {
    if (isDone) return
    isDone = true
    await run()
  }
}

describe.each(BACKENDS)('$backend', ({ openDb }) => {
  const start = testDbs(openDb)

  describe.each(MODES)('%s', (mode) => {
    test('reads its own writes; others see all of them at once', async () => {
      const { db } = await start()
      for (const key of ['a', 'b', 'c']) await db.put(key, 'old')
      const result = await db.transaction(
        async (txn) => {
          await txn.put('a', 'new')
          await txn.delete('b')
          await txn.insert('d', new Uint8Array([255]))
          expect(await txn.get('a')).toBe('new')
          expect(await txn.get('b')).toBeUndefined()
          expect(await txn.getForUpdate('c')).toBe('old')
          expect(await txn.get('d', { as: 'bytes' })).toEqual(new Uint8Array([255]))
          expect(await txn.batchGet(['c', 'b', 'a'])).toEqual(['old', undefined, 'new'])
          const pairs = await collect(txn.scan({ end: 'd' }))
          expect(pairs.map(({ key, value }) => [key, value])).toEqual([
            ['a', 'new'],
            ['c', 'old'],
          ])
          expect(pairs[0]?.commitTs).toBeUndefined()
          expect(await collect(txn.scan({ reverse: true, limit: 2, keysOnly: true }))).toMatchObject([
            { key: 'd' },
            { key: 'c' },
          ])
          expect(await db.batchGet(['a', 'b', 'd'])).toEqual(['old', 'old', undefined])
          return txn
        },
        { mode },
      )
      expect(result.commitTs).toBeGreaterThan(result.startTs)
      expect(await db.batchGet(['a', 'b', 'c'])).toEqual(['new', undefined, 'old'])
      expect((await db.getVersion('d', { as: 'bytes' }))?.commitTs).toBe(result.commitTs)
    })

    test('money is neither made nor lost by transfers side by side', { tags: ['long'] }, async () => {
      const { db } = await start()
      const accounts = ['ann', 'bob', 'joe', 'sue']
      for (const name of accounts) await db.put(name, '100')
      const transfer = (from: string, to: string, amount: number) =>
        db.transaction(
          async (txn) => {
            const balance = Number(await txn.getForUpdate(from))
            if (balance < amount) return false
            await txn.put(from, String(balance - amount))
            await txn.put(to, String(Number(await txn.getForUpdate(to)) + amount))
            return true
          },
          { mode, retries: 1000, lockWaitMs: 10_000 },
        )
      const transfers = Array.from({ length: 20 }, (_, i) => {
        const from = accounts[i % 4] as string
        const to = accounts[(i + 1 + (i % 3)) % 4] as string
        return transfer(from, to, 1 + (i % 7))
      })
      const watch = async (): Promise<number> => {
        const pairs = await collect((await db.snapshot()).scan())
        return pairs.reduce((sum, { value }) => sum + Number(value), 0)
      }
      for (let i = 0; i < 5; i++) expect(await watch()).toBe(400)
      await Promise.all(transfers)
      expect(await watch()).toBe(400)
    })

    test('a thrown error gives everything up, and is thrown on', async () => {
      const { db, locksLeft, another } = await start()
      let runs = 0
      const thrown = new Error('changed my mind')
      const run = async (txn: Txn): Promise<void> => {
        runs++
        await txn.put('a', 'x')
        throw thrown
      }
      expect(await failureOf(db.transaction(run, { mode }))).toBe(thrown)
      expect(runs).toBe(1)
      expect(await locksLeft()).toEqual([])
      expect(await (await another()).get('a')).toBeUndefined()
    })

    test('increment, by many at once', { tags: ['long'] }, async () => {
      const { db } = await start()
      const add = () => db.transaction((txn) => txn.increment('n', 2), { mode, retries: 1000, lockWaitMs: 10_000 })
      const sums = await Promise.all(Array.from({ length: 25 }, add))
      expect(sums.sort((a, b) => a - b)).toEqual(Array.from({ length: 25 }, (_, i) => 2 * i + 2))
      expect(await db.get('n')).toBe('50')
      expect(await db.transaction((txn) => txn.increment('n', -60), { mode })).toBe(-10)
    })

    test('min and max give what is left, and keep the expiry', async () => {
      const { db } = await start()
      await db.put('n', '5', { ttl: '1h' })
      const before = await db.getVersion('n')
      const run = async (txn: Txn) => [await txn.max('n', 7), await txn.max('n', 3), await txn.min('n', -2)]
      expect(await db.transaction(run, { mode })).toEqual([7, 7, -2])
      expect(await db.getVersion('n')).toMatchObject({ value: '-2', expireTs: before?.expireTs })
      const fresh = async (txn: Txn) => [await txn.min('low', 4), await txn.max('high', -4)]
      expect(await db.transaction(fresh, { mode })).toEqual([4, -4])
      await db.transaction((txn) => txn.max('n', 1, { ttl: '2h' }), { mode })
      expect((await db.getVersion('n'))?.expireTs).toBeGreaterThan(before?.expireTs ?? 0)
    })

    test('a versionstamped put ends in the commit timestamp', async () => {
      const { db } = await start()
      // A commit may be a write conflict on a busy shared store, so the transaction is one that is tried again.
      const txn = await db.transaction(
        async (txn) => {
          await txn.put('log/', 'a', { versionstamp: true })
          await txn.put('n', '1')
          await txn.put('log/', 'b', { versionstamp: true, ttl: '1h' })
          expect(txn.versionstamped).toBeUndefined()
          expect(await txn.get('log/')).toBeUndefined()
          return txn
        },
        { mode },
      )
      const { commitTs = 0, versionstamped: [first = Buffer.alloc(0), second = Buffer.alloc(0)] = [] } = txn
      expect(Buffer.from(first).subarray(4).toString('hex')).toBe(`${commitTs.toString(16).padStart(16, '0')}0000`)
      expect(Buffer.compare(first, second)).toBe(-1)
      expect(await db.getVersion(first)).toMatchObject({ value: 'a', commitTs })
      expect(await db.getVersion(second)).toMatchObject({ value: 'b', commitTs, expireTs: expect.any(Number) })
      expect(await db.get('n')).toBe('1')
      const both = { versionstamp: true, lease: 'l' }
      await expect(db.transaction((txn) => txn.put('log/', '', both), { mode })).rejects.toThrow('lease')
    })

    test('a version is that of the snapshot; an own write has none yet', async () => {
      const { db } = await start()
      const { commitTs } = await db.put('k', 'old', { ttl: '1h' })
      await db.transaction(
        async (txn) => {
          await db.put('k', 'later')
          const old = await txn.getVersion('k')
          expect(old).toMatchObject({
            value: 'old',
            commitTs,
            expireTs: expect.any(Number),
            expireAt: expect.any(Date),
          })
          expect(await txn.getVersion('nobody')).toBeUndefined()
          await txn.put('own', 'mine')
          expect(await txn.getVersion('own')).toEqual({ value: 'mine' })
          await txn.delete('own')
          expect(await txn.getVersion('own')).toBeUndefined()
        },
        { mode },
      )
    })

    test('what exists is not inserted', async () => {
      const { db } = await start()
      await db.put('k', 'there')
      const error = await failureOf(db.transaction((txn) => txn.insert('k', 'x'), { mode }))
      expect(error).toMatchObject({ code: 'already_exists', fields: { key: new TextEncoder().encode('k') } })
    })

    test('serializable: of two that break each other’s reads, one runs again', async () => {
      const { db } = await start()
      await db.put('on call/ann', 'yes')
      await db.put('on call/bob', 'yes')
      let runs = 0
      const bothHaveRead = meeting(2)
      const leave = (name: string): Promise<boolean> =>
        db.transaction(
          async (txn) => {
            runs++
            const pairs = await collect(txn.scan({ prefix: 'on call/' }))
            await bothHaveRead()
            if (pairs.filter(({ value }) => value === 'yes').length < 2) return false
            await txn.put(`on call/${name}`, 'no')
            return true
          },
          { mode, isolation: 'serializable', retries: 100 },
        )
      expect((await Promise.all([leave('ann'), leave('bob')])).sort()).toEqual([false, true])
      expect(runs).toBeGreaterThan(2)
    })

    test('ended: whatever is asked of it throws', async () => {
      const { db } = await start()
      const open = async (): Promise<OpenTxn> => db.begin({ mode })
      const leaked: Txn[] = [await db.transaction(async (txn) => txn, { mode })]
      const rolledBack = await open()
      await rolledBack.rollback()
      await rolledBack.rollback()
      leaked.push(rolledBack)
      const committed = await open()
      await committed.put('k', 'v')
      const commitTs = await committed.commit()
      expect(await committed.commit()).toBe(commitTs)
      await committed.rollback()
      expect(committed.commitTs).toBe(commitTs)
      leaked.push(committed)
      for (const txn of leaked) {
        const calls = [
          txn.get('k'),
          txn.getVersion('k'),
          txn.getForUpdate('k'),
          txn.batchGet(['k']),
          collect(txn.scan()),
          txn.put('k', 'w'),
          txn.delete('k'),
          txn.insert('l', 'w'),
          txn.increment('n'),
          txn.min('n', 1),
        ]
        for (const error of await Promise.all(calls.map(failureOf)))
          expect(error).toMatchObject({ code: 'txn_not_found' })
      }
      await expect(rolledBack.commit()).rejects.toThrow(KvError)
      expect(await db.get('k')).toBe('v')
    })
  })

  describe('tried again', () => {
    test('a conflict runs the function once more, at a later start_ts, with nothing of the first run', async () => {
      const { db } = await start()
      await db.put('k', '1')
      const interfere = once(() => db.put('k', '10'))
      const starts: number[] = []
      await db.transaction(async (txn) => {
        starts.push(txn.startTs)
        if (starts.length === 1) await txn.put('only in the first run', 'x')
        const value = Number(await txn.get('k'))
        await interfere()
        await txn.put('k', String(value + 1))
      })
      expect(starts).toHaveLength(2)
      expect(starts[1]).toBeGreaterThan(starts[0] as number)
      expect(await db.get('k')).toBe('11')
      expect(await db.get('only in the first run')).toBeUndefined()
    })

    test('as often as asked, then the conflict comes out', async () => {
      const { db } = await start()
      for (const retries of [0, 2]) {
        let runs = 0
        const lose = async (txn: Txn): Promise<void> => {
          runs++
          await txn.get('k')
          await db.put('k', 'x')
          await txn.put('k', 'y')
        }
        const error = await failureOf(db.transaction(lose, { retries }))
        expect(error).toMatchObject({ code: 'write_conflict', fields: { reason: 'optimistic' } })
        expect(runs).toBe(retries + 1)
      }
    })

    test('not when the caller’s signal is aborted, and then nothing stays locked', async () => {
      const { db, store, locksLeft } = await start()
      for (const mode of MODES) {
        const controller = new AbortController()
        const run = async (txn: Txn): Promise<void> => {
          await txn.put('k', 'x')
          controller.abort(new Error('enough'))
          await txn.get('l')
        }
        expect((await failureOf(db.transaction(run, { mode, signal: controller.signal }))).message).toBe('enough')
      }
      expect(await locksLeft()).toEqual([])
      expect((await store.mvccGetByKey({ key: utf8('k') })).writes).not.toContainEqual(
        expect.objectContaining({ type: 'put' }),
      )
    })
  })

  describe('pessimistic', () => {
    test('the second waits for the first, and reads what it wrote', async () => {
      const { db } = await start()
      await db.put('k', '1')
      const first = await db.begin({ mode: 'pessimistic' })
      await first.getForUpdate('k')
      const second = await db.begin({ mode: 'pessimistic', lockWaitMs: 10_000 })
      const waiting = second.getForUpdate('k')
      await first.put('k', '2')
      await first.commit()
      expect(await waiting).toBe('2')
      await second.put('k', '3')
      await second.commit()
      expect(await db.get('k')).toBe('3')
    })

    test('waits no longer than lockWaitMs', async () => {
      const { db } = await start()
      const holder = await db.begin({ mode: 'pessimistic' })
      await holder.put('k', 'x')
      const waiter = await db.begin({ mode: 'pessimistic', lockWaitMs: 50 })
      const error = await failureOf(waiter.getForUpdate('k'))
      expect(error).toMatchObject({ code: 'lock_wait_timeout', fields: { lock: { startTs: holder.startTs } } })
      await waiter.rollback()
      await holder.commit()
    })

    test('two that lock crosswise both come through', async () => {
      const { db } = await start()
      let runs = 0
      const bothHaveOne = meeting(2)
      const lockBoth = (first: string, second: string) =>
        db.transaction(
          async (txn) => {
            runs++
            await txn.increment(first)
            await bothHaveOne()
            await txn.increment(second)
          },
          { mode: 'pessimistic', lockWaitMs: 20_000 },
        )
      await Promise.all([lockBoth('a', 'b'), lockBoth('b', 'a')])
      expect(await db.batchGet(['a', 'b'])).toEqual(['2', '2'])
      expect(runs).toBeGreaterThan(2)
    })
  })

  test('a call that is not awaited is found out before the commit', async () => {
    const { db } = await start()
    for (const mode of MODES) {
      const forgotten: Promise<unknown>[] = []
      const forget = async (txn: Txn): Promise<void> => {
        await txn.put('a', 'x')
        forgotten.push(txn.increment('b').catch(() => {}))
      }
      const error = await failureOf(db.transaction(forget, { mode }))
      expect(error).toBeInstanceOf(TypeError)
      expect(error.message).toContain('await each')
      await Promise.all(forgotten)
    }
    expect(await db.batchGet(['a', 'b'])).toEqual([undefined, undefined])
  })

  test('bytes that the caller goes on using', async () => {
    const { db } = await start()
    const key = new Uint8Array([1])
    const value = Buffer.from('before')
    await db.transaction(async (txn) => {
      await txn.put(key, value)
      key[0] = 2
      value.write('AFTER!')
    })
    expect(await db.get(new Uint8Array([1]))).toBe('before')
    expect(await db.count()).toBe(1)
  })

  test('bytes that were handed out are the caller’s: changing them changes no write, no other answer, and no scan', async () => {
    const { db } = await start()
    const before = new TextEncoder().encode('before')
    await db.transaction(async (txn) => {
      await txn.put('k', before)
      ;(await txn.get('k', { as: 'bytes' }))?.fill(0)
      for await (const { key, value } of txn.scan({ as: 'bytes' })) [key, value].map((bytes) => bytes.fill(0))
    })
    expect(await db.get('k', { as: 'bytes' })).toEqual(before)
    const [first, second] = await db.batchGet(['k', 'k'], { as: 'bytes' })
    first?.fill(0)
    expect(second).toEqual(before)
    await db.transaction(async (txn) => {
      for (let i = 0; i < 100; i++) await txn.put(`page/${i}`, 'x')
    })
    let pairs = 0
    for await (const { key } of db.scan({ prefix: 'page/', as: 'bytes' })) {
      key.fill(0)
      pairs++
    }
    expect(pairs).toBe(100)
  })

  test('a counter that is none', async () => {
    const { db } = await start()
    await db.put('text', 'seven')
    await db.put('huge', String(2 ** 53 - 1))
    const add = (key: string, by: number) => failureOf(db.transaction((txn) => txn.increment(key, by)))
    expect((await add('text', 1)).message).toBe('the value of "text" is no decimal integer')
    expect(await add('huge', 1)).toBeInstanceOf(RangeError)
    expect(await add('n', 0.5)).toBeInstanceOf(TypeError)
    await db.put('beyond', String(2n ** 53n))
    const least = await failureOf(db.transaction((txn) => txn.max('beyond', 1)))
    expect(least).toBeInstanceOf(RangeError)
    expect(least.message).toContain('the new value 9007199254740992 of "beyond"')
  })

  test('a transaction of many megabytes, read back in pages that fit', { tags: ['long'] }, async () => {
    const { db } = await start()
    const value = new Uint8Array(512 * 1024).fill(7)
    await db.transaction(async (txn) => {
      for (let i = 0; i < 30; i++) await txn.put(`big/${String(i).padStart(2, '0')}`, value)
      for (let i = 0; i < 2000; i++) await txn.put(`small/${i}`, 'x')
    })
    let bytes = 0
    for await (const pair of db.scan({ as: 'bytes', prefix: 'big/' })) bytes += pair.value.length
    expect(bytes).toBe(30 * value.length)
    expect(await db.count({ prefix: 'small/' })).toBe(2000)
  })
})

const start = testServers()

test('an abort during the commit leaves no doubt: it is not heard', async () => {
  const controller = new AbortController()
  const network = new FaultyNetwork(({ path }) => {
    if (path.endsWith('/prewrite')) controller.abort()
    return 'arrive'
  })
  const db = await connectTo(await start(), { fetch: network.fetch })
  await db.transaction((txn) => txn.put('k', 'v'), { signal: controller.signal })
  expect(controller.signal.aborted).toBe(true)
  expect(await db.get('k')).toBe('v')
})

describe('faults of the network', () => {
  test.each(MODES)('%s: lost and doubled messages change nothing', { tags: ['long'] }, async (mode) => {
    const server = await start()
    const fates = ['arrive', 'lose_answer', 'arrive', 'twice', 'lose_request', 'arrive', 'busy'] as const
    let sent = 0
    const network = new FaultyNetwork(() => fates[sent++ % fates.length] ?? 'arrive')
    const db = await connectTo(server, { fetch: network.fetch })
    const add = (i: number) =>
      db.transaction(
        async (txn) => {
          await txn.increment('n')
          await txn.put(`k${i}`, String(txn.startTs))
        },
        { mode, retries: 1000, lockWaitMs: 20_000 },
      )
    for (let i = 0; i < 16; i += 4) await Promise.all([add(i), add(i + 1), add(i + 2), add(i + 3)])
    await db.close()
    const after = await connectTo(server)
    expect(await after.get('n')).toBe('16')
    expect(await after.count({ prefix: 'k' })).toBe(16)
    const puts = listOf(await server.mvcc('n'), 'writes').filter(({ type }) => type === 'put')
    expect(puts).toHaveLength(16)
  })

  test.each(MODES)(
    '%s: a transaction in several batches is all or nothing, to every reader',
    { tags: ['long'] },
    async (mode) => {
      const fates = ['arrive', 'arrive', 'lose_answer', 'lose_request', 'twice'] as const
      let sent = 0
      const network = new FaultyNetwork(() => fates[sent++ % fates.length] ?? 'arrive')
      const db = await connectTo(await start(), { fetch: network.fetch, lockWaitMs: 20_000 })
      const keys = ['a', 'b', 'c', 'd']
      const padding = 'x'.repeat(700 * 1024)
      let isWriting = true
      const write = async (): Promise<void> => {
        for (let version = 1; version <= 6; version++)
          await db.transaction(
            async (txn) => {
              for (const key of keys) await txn.put(key, `${version} ${padding}`)
            },
            { mode },
          )
        isWriting = false
      }
      const read = async (): Promise<void> => {
        while (isWriting) {
          const versions = (await db.batchGet(keys)).map((value) => value?.split(' ')[0])
          expect(new Set(versions).size, versions.join()).toBe(1)
        }
      }
      await Promise.all([write(), read()])
      expect((await db.get('d'))?.startsWith('6 ')).toBe(true)
      await db.close()
    },
  )

  /** Prewrites arrive, and from then on nothing comes back. */
  async function cutOff(): Promise<{ db: Db; network: FaultyNetwork }> {
    const network = new FaultyNetwork()
    const db = await connectTo(await start(), { fetch: network.fetch, retryMs: 50 })
    let isCut = false
    network.fateOf = ({ path }) => {
      isCut ||= path.endsWith('/prewrite')
      if (!isCut) return 'arrive'
      return path.endsWith('/prewrite') ? 'lose_answer' : 'lose_request'
    }
    return { db, network }
  }

  test('an outcome that nobody knows is Undetermined, and never run again', async () => {
    const { db, network } = await cutOff()
    let runs = 0
    const run = (txn: Txn): Promise<void> => {
      runs++
      return txn.put('k', 'v')
    }
    const error = await failureOf(db.transaction(run))
    expect(error).toBeInstanceOf(Undetermined)
    expect(error).toMatchObject({ code: 'undetermined' })
    expect(runs).toBe(1)
    network.fateOf = () => 'arrive'
    expect(await db.get('k')).toBe('v') // It had committed.
  })

  test('commit, called again, learns what became of it', async () => {
    const { db, network } = await cutOff()
    const txn = await db.begin()
    await txn.put('k', 'v')
    expect(await failureOf(txn.commit())).toBeInstanceOf(Undetermined)
    await txn.rollback() // It is not the client's to give up any more.
    network.fateOf = () => 'arrive'
    const commitTs = await txn.commit()
    expect(await db.getVersion('k')).toEqual({ value: 'v', commitTs })
  })

  test('what was never sent has failed for certain', async () => {
    const server = await start()
    const network = new FaultyNetwork(({ path }) => (path.endsWith('/prewrite') ? 'refuse' : 'arrive'))
    const db = await connectTo(server, { fetch: network.fetch, retryMs: 50 })
    const error = await failureOf(db.transaction((txn) => txn.put('k', 'v')))
    expect(error).toMatchObject({ code: 'connection_failed', mayHaveTakenEffect: false })
  })
})
