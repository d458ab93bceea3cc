import { describe, expect, test } from 'vitest'
import { connect, type Fetch } from '../../src/client/index.js'
import { COMMIT_OPTIONS_DEFAULT, Coordinator } from '../../src/coordinator/coordinator.js'
import { LockResolver } from '../../src/coordinator/lock-resolver.js'
import type { TransactionOptions } from '../../src/coordinator/transaction.js'
import { Undetermined } from '../../src/coordinator/undetermined.js'
import { KvError } from '../../src/errors/kv-error.js'
import type { Store } from '../../src/store/store.js'
import { TIMESTAMP_MAX, type Timestamp } from '../../src/timestamp.js'
import { testServers } from '../http/support.js'
import { memoryStores, prewriteOf, put, read, utf8 } from '../store/support.js'
import { FaultyApi } from './faulty-api.js'

/**
 * What a commit promises its caller, over a network that loses requests and answers and delivers copies late. Fulfilled:
 * committed. Rejected with `Undetermined`: one or the other. Rejected with anything else: it did not commit, and never will.
 */

const stores = memoryStores()
const servers = testServers()

/** A batch a key. */
const TWO_PC = { ...COMMIT_OPTIONS_DEFAULT, batchBytes: 1, asyncCommitKeysMax: 0 }
const ASYNC = { ...COMMIT_OPTIONS_DEFAULT, batchBytes: 1 }
const OPTIMISTIC: TransactionOptions = { mode: 'optimistic', isolation: 'snapshot', lockWaitMs: 0 }
const PESSIMISTIC: TransactionOptions = { ...OPTIMISTIC, mode: 'pessimistic' }
const SERIALIZABLE: TransactionOptions = { ...OPTIMISTIC, isolation: 'serializable' }

type Said = 'committed' | 'undetermined' | 'failed'

async function said(commit: Promise<unknown>): Promise<Said> {
  try {
    await commit
    return 'committed'
  } catch (error) {
    return error instanceof Undetermined ? 'undetermined' : 'failed'
  }
}

/** Ends every transaction that left locks, as others do once they are too old. @returns the values of the keys. */
async function settled(store: Store, keys: readonly string[]): Promise<(string | undefined)[]> {
  for (;;) {
    const { locks } = await store.scanLock({ maxTs: TIMESTAMP_MAX })
    if (locks.length === 0) break
    await new LockResolver(store).resolve(locks, TIMESTAMP_MAX)
  }
  return Promise.all(keys.map((key) => read(store, key)))
}

/** What was said of a transaction that writes `mine` to every key agrees with what became of it. */
function expectHonest(word: Said, values: readonly (string | undefined)[]): void {
  const found = values.every((value) => value === 'mine') ? 'all' : values.includes('mine') ? 'torn' : 'none'
  const fits = { committed: ['all'], undetermined: ['all', 'none'], failed: ['none'] }[word]
  expect(fits, `${word}, and ${found} of it is there`).toContain(found)
}

/** A transaction of somebody else that holds a lock, and its end. */
async function lockedBy(store: Store, startTs: Timestamp, key: string): Promise<() => Promise<void>> {
  await store.prewrite(prewriteOf(startTs, [put(key, 'other')], { lockTtl: 60_000 }))
  return () => store.rollback({ keys: [utf8(key)], startTs })
}

test('a full disk that still takes the roll back is what the caller hears of, and a lost answer is a lost race', async () => {
  for (const [isLasting, code] of [
    [true, 'storage_unavailable'],
    [false, 'write_conflict'],
  ] as const) {
    const store = await stores.open()
    store.prewrite = () => Promise.reject(new KvError('storage_unavailable', 'no space', {}, { isLasting }))
    const coordinator = new Coordinator(store, COMMIT_OPTIONS_DEFAULT)
    const txn = await coordinator.begin(OPTIMISTIC)
    await txn.put(utf8('a'), utf8('mine'))
    await expect(txn.commit()).rejects.toMatchObject({ code })
    await coordinator.idle()
    expect(await settled(store, ['a'])).toEqual([undefined])
  }
})

describe('commit again, after Undetermined', () => {
  /** Two phases; the primary is committed, and nobody heard of it. */
  async function committedUnheard(options: TransactionOptions = OPTIMISTIC) {
    const store = await stores.open()
    const network = new FaultyApi(store, ({ name }) => {
      if (name !== 'commit') return 'arrive'
      network.cutOff()
      return 'lose_answer'
    })
    const coordinator = new Coordinator(network.api, TWO_PC)
    const txn = await coordinator.begin(options)
    await txn.get(utf8('r'))
    for (const key of ['a', 'b']) await txn.put(utf8(key), utf8('mine'))
    expect(await said(txn.commit())).toBe('undetermined')
    network.fateOf = () => 'arrive'
    return { store, network, coordinator, txn }
  }

  test('two phases: it learns that it is committed', async () => {
    const { store, network, coordinator, txn } = await committedUnheard()
    network.heal()
    expect(await said(txn.commit())).toBe('committed')
    await coordinator.idle()
    expect(await settled(store, ['a', 'b'])).toEqual(['mine', 'mine'])
  })

  test('two phases: still cut off', async () => {
    const { store, network, coordinator, txn } = await committedUnheard()
    const again = await said(txn.commit())
    network.heal()
    await coordinator.idle()
    expect(await settled(store, ['a', 'b'])).toEqual(['mine', 'mine'])
    expect(again).toBe('undetermined')
    expect(await said(txn.commit())).toBe('committed')
  })

  test('two phases, and the store has repeated each call for as long as it may: nothing is asked again', async () => {
    const store = await stores.open()
    const network = new FaultyApi(store, ({ name }) => (name === 'commit' ? 'lose_answer' : 'arrive'))
    const coordinator = new Coordinator(network.api, { ...TWO_PC, repeatMsMax: 0 })
    const txn = await coordinator.begin(OPTIMISTIC)
    for (const key of ['a', 'b']) await txn.put(utf8(key), utf8('mine'))
    const before = network.calls.length
    expect(await said(txn.commit())).toBe('undetermined')
    expect(network.calls.slice(before).map(({ name }) => name)).toEqual(['prewrite', 'prewrite', 'tso', 'commit'])
    network.fateOf = () => 'arrive'
    expect(await said(txn.commit())).toBe('committed')
  })

  test('two phases: the network comes back half-way', async () => {
    const { store, network, coordinator, txn } = await committedUnheard()
    network.heal()
    network.fateOf = ({ name }) => (name === 'prewrite' ? 'lose_request' : 'arrive')
    const again = await said(txn.commit())
    await coordinator.idle()
    expect(await settled(store, ['a', 'b'])).toEqual(['mine', 'mine'])
    expect(again).not.toBe('failed')
  })

  test('two phases: its signal is aborted', async () => {
    const abort = new AbortController()
    const { store, network, coordinator, txn } = await committedUnheard({ ...OPTIMISTIC, signal: abort.signal })
    network.heal()
    abort.abort(new Error('enough'))
    const again = await said(txn.commit())
    await coordinator.idle()
    expect(await settled(store, ['a', 'b'])).toEqual(['mine', 'mine'])
    expect(again).not.toBe('failed')
  })

  test('two phases, serializable: what it read was written since', async () => {
    const { store, network, coordinator, txn } = await committedUnheard(SERIALIZABLE)
    const other = await new Coordinator(store).begin(OPTIMISTIC)
    await other.put(utf8('r'), utf8('other'))
    await other.commit()
    network.heal()
    const again = await said(txn.commit())
    await coordinator.idle()
    expect(await settled(store, ['a', 'b'])).toEqual(['mine', 'mine'])
    expect(again).toBe('committed')
  })

  test('one phase: its signal is aborted', async () => {
    const store = await stores.open()
    const network = new FaultyApi(store, ({ name }) => {
      if (name !== 'prewrite') return 'arrive'
      network.cutOff()
      return 'lose_answer'
    })
    const abort = new AbortController()
    const txn = await new Coordinator(network.api).begin({ ...OPTIMISTIC, signal: abort.signal })
    await txn.put(utf8('a'), utf8('mine'))
    expect(await said(txn.commit())).toBe('undetermined')
    network.heal()
    abort.abort(new Error('enough'))
    const again = await said(txn.commit())
    expect(await settled(store, ['a'])).toEqual(['mine'])
    expect(again).not.toBe('failed')
  })

  test('one phase: a lock is in the way, and then the first request arrives after all', async () => {
    const store = await stores.open()
    const network = new FaultyApi(store, ({ name }) => {
      if (name !== 'prewrite') return 'arrive'
      network.cutOff()
      return 'late'
    })
    const otherTs = await store.tso(1)
    const coordinator = new Coordinator(network.api)
    const txn = await coordinator.begin(OPTIMISTIC)
    await txn.put(utf8('a'), utf8('mine'))
    expect(await said(txn.commit())).toBe('undetermined')
    const unlock = await lockedBy(store, otherTs, 'a')
    network.heal()
    network.fateOf = () => 'arrive'
    const again = await said(txn.commit())
    await coordinator.idle()
    await unlock()
    await network.deliverLate()
    expectHonest(again, await settled(store, ['a']))
  })
})

describe('a copy of a refused prewrite arrives when nothing refuses it any more', () => {
  test('one phase: a key was locked', async () => {
    const store = await stores.open()
    const network = new FaultyApi(store, ({ name }) => (name === 'prewrite' ? 'echo' : 'arrive'))
    const unlock = await lockedBy(store, await store.tso(1), 'a')
    const coordinator = new Coordinator(network.api)
    const txn = await coordinator.begin(OPTIMISTIC)
    await txn.put(utf8('a'), utf8('mine'))
    const first = await said(txn.commit())
    await coordinator.idle()
    await unlock()
    await network.deliverLate()
    expectHonest(first, await settled(store, ['a']))
  })

  test('one phase, serializable: an older transaction was writing what it read', async () => {
    const store = await stores.open()
    const network = new FaultyApi(store, ({ name }) => (name === 'prewrite' ? 'echo' : 'arrive'))
    const otherTs = await store.tso(1)
    const coordinator = new Coordinator(network.api)
    const txn = await coordinator.begin(SERIALIZABLE)
    await txn.get(utf8('r'))
    await txn.put(utf8('a'), utf8('mine'))
    const unlock = await lockedBy(store, otherTs, 'r')
    const first = await said(txn.commit())
    await coordinator.idle()
    await unlock()
    await network.deliverLate()
    expectHonest(first, await settled(store, ['a']))
  })

  test('async commit: a key was locked, and the coordinator is cut off before it has cleaned up', async () => {
    const store = await stores.open()
    const network = new FaultyApi(store, ({ name }) => (name === 'prewrite' ? 'echo' : 'arrive'))
    const unlock = await lockedBy(store, await store.tso(1), 'b')
    const coordinator = new Coordinator(network.api, ASYNC)
    const txn = await coordinator.begin(OPTIMISTIC)
    for (const key of ['a', 'b']) await txn.put(utf8(key), utf8('mine'))
    network.fateOf = ({ name }) =>
      name === 'prewrite' ? 'echo' : name === 'rollback' || name === 'cleanup' ? 'lose_request' : 'arrive'
    const first = await said(txn.commit())
    network.cutOff()
    await coordinator.idle()
    await unlock()
    await network.deliverLate()
    expectHonest(first, await settled(store, ['a', 'b']))
  })

  test('over HTTP: a request that the client repeated', async () => {
    const server = await servers()
    const url = await server.listen().then((port) => `http://127.0.0.1:${port}`)
    let late: (() => Promise<Response>) | undefined
    const fetchOnceLate: Fetch = (input, init) => {
      if (late !== undefined || !input.endsWith('/prewrite')) return fetch(input, init)
      late = () => fetch(input, { ...init, signal: null })
      throw new TypeError('fetch failed', { cause: Object.assign(new Error('reset'), { code: 'ECONNRESET' }) })
    }
    const db = connect(url, { fetch: fetchOnceLate, lockWaitMs: 0 })
    const unlock = await lockedBy(server.store, await server.store.tso(1), 'a')
    let runs = 0
    await db.transaction(async (txn) => {
      if (++runs === 2) {
        await unlock()
        await (await late?.())?.arrayBuffer()
      }
      await txn.increment('n', 1)
      await txn.put('a', 'mine')
    })
    // One call of `transaction`, one increment.
    expect(await db.get('n')).toBe('1')
    await db.close()
  })
})

describe('a pessimistic lock', () => {
  test('a copy of its request arrives after the primary was committed: the rest is still committed', async () => {
    const store = await stores.open()
    const network = new FaultyApi(store, ({ name, index }) => {
      if (name === 'acquirePessimisticLock' && index === 0) return 'echo'
      return name === 'commit' && index > 0 ? 'lose_request' : 'arrive'
    })
    const coordinator = new Coordinator(network.api, TWO_PC)
    const txn = await coordinator.begin(PESSIMISTIC)
    // The primary last in key order: others meet the secondary first.
    for (const key of ['b', 'a']) await txn.put(utf8(key), utf8('mine'))
    await txn.commit()
    await coordinator.idle()
    await network.deliverLate()
    expect(await settled(store, ['a', 'b'])).toEqual(['mine', 'mine'])
  })

  test('the same, and the coordinator has to ask what became of its commit', async () => {
    const store = await stores.open()
    const network = new FaultyApi(store, ({ name, index }) => {
      if (name === 'acquirePessimisticLock' && index === 0) return 'echo'
      return name === 'commit' ? 'lose_answer' : 'arrive'
    })
    const coordinator = new Coordinator(
      {
        ...network.api,
        checkTxnStatus: async (request) => {
          await network.deliverLate()
          return network.api.checkTxnStatus(request)
        },
      },
      TWO_PC,
    )
    const txn = await coordinator.begin(PESSIMISTIC)
    for (const key of ['a', 'b']) await txn.put(utf8(key), utf8('mine'))
    const first = await said(txn.commit())
    await coordinator.idle()
    const values = await settled(store, ['a', 'b'])
    expect(values).toEqual(['mine', 'mine'])
    expectHonest(first, values)
  })

  test('taken over a newer version, and nobody heard of it: the commit goes above that version', async () => {
    const store = await stores.open()
    const network = new FaultyApi(store, ({ name, index }) =>
      name === 'acquirePessimisticLock' && index === 0 ? 'lose_answer' : 'arrive',
    )
    const coordinator = new Coordinator(network.api)
    const txn = await coordinator.begin(PESSIMISTIC)
    const otherTs = await store.tso(1)
    await store.prewrite(prewriteOf(otherTs, [put('a', 'other')]))
    const { commitTs: newer } = await store.commit({
      keys: [utf8('a')],
      startTs: otherTs,
      commitTs: await store.tso(1),
    })
    await expect(txn.put(utf8('a'), utf8('mine'))).rejects.toMatchObject({ code: 'connection_failed' })
    await txn.put(utf8('a'), utf8('mine'))
    expect(await txn.commit()).toBeGreaterThan(newer)
    expect(await settled(store, ['a'])).toEqual(['mine'])
  })
})
