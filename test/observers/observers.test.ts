import { describe, expect, test } from 'vitest'
import { codeOf, failureOf, prewriteOf, TestClock, testStores, text, utf8 } from '../store/support.js'
import { keysOf, openObservers, prefix, putNow, runNow } from './support.js'

const stores = testStores()

async function start() {
  const store = await stores.open()
  const observers = await openObservers(store)
  return { store, observers }
}

describe('a claim', () => {
  test('hands out what was committed, with consecutive fences and values, and a run ends it', async () => {
    const { store, observers } = await start()
    const { isNew, state } = await observers.put('words', prefix('doc/'))
    expect([isNew, state.state, state.pending]).toEqual([true, 'running', 0])
    const commitTs = await putNow(store, 'doc/1', 'doc/2', 'other')
    const claims = await observers.claim('words', { worker: 'w', limit: 10, values: true })
    expect(keysOf(claims)).toEqual(['doc/1', 'doc/2'])
    expect(claims.map(({ commitTs }) => commitTs)).toEqual([commitTs, commitTs])
    expect(claims.map(({ value }) => text(value ?? utf8('')))).toEqual(['value of doc/1', 'value of doc/2'])
    expect((claims[1]?.fence ?? 0) - (claims[0]?.fence ?? 0)).toBe(1)
    expect(await observers.claim('words', { worker: 'w', limit: 10 })).toEqual([])
    expect(await observers.get('words')).toMatchObject({ pending: 2, pendingIsExact: true, claimed: 2, acks: 0 })
    await runNow(store, 'words', ...claims)
    expect(await observers.get('words')).toMatchObject({ pending: 0, claimed: 0, acks: 2, lagMs: 0 })
  })

  test('lasts from its answer on, however long its fence has taken', async () => {
    const clock = new TestClock()
    const store = await stores.open({ now: clock.now })
    const observers = await openObservers(store)
    await observers.put('words', prefix('doc/'))
    await putNow(store, 'doc/1')
    const { tso } = store
    let answer = (): void => {}
    const asked = new Promise<void>((isAsked) => {
      store.tso = (count) =>
        new Promise((resolve) => {
          answer = () => resolve(tso.call(store, count))
          isAsked()
        })
    })
    const claiming = observers.claim('words', { worker: 'w', leaseMs: 1000 })
    await asked
    clock.ms += 5000
    expect(await observers.claim('words', { worker: 'other' })).toEqual([]) // Looks at the time.
    answer()
    const [claim] = await claiming
    store.tso = tso
    clock.ms += 999
    expect(claim).toMatchObject({ attempt: 1 })
    expect(await observers.extend('words', claim === undefined ? [] : [claim])).toEqual([])
  })

  test('waits until there is something', async () => {
    const { store, observers } = await start()
    await observers.put('words', prefix('doc/'))
    const first = observers.claim('words', { worker: 'w', limit: 1, waitMs: 60_000 })
    const second = observers.claim('words', { worker: 'w', limit: 10, waitMs: 60_000 })
    await putNow(store, 'doc/1', 'doc/2', 'doc/3')
    expect(keysOf(await first)).toEqual(['doc/1'])
    expect(keysOf(await second)).toEqual(['doc/2', 'doc/3'])
  })
})

describe('a failed run', () => {
  test('is delayed, then parked, and can be retried or skipped', async () => {
    const clock = new TestClock()
    const store = await stores.open({ now: clock.now })
    const observers = await openObservers(store, { random: () => 0.5 })
    await observers.put('words', { ...prefix('doc/'), maxAttempts: 2, backoffMs: 100 })
    await putNow(store, 'doc/1')
    const claim = () => observers.claim('words', { worker: 'w' })
    const fail = async (error: string) => {
      const [claimed] = await claim()
      if (claimed === undefined) throw new Error('nothing to claim')
      return observers.release('words', [{ ...claimed, error }])
    }
    expect(await fail('one')).toEqual({ released: 1, parked: [] })
    expect(await observers.get('words')).toMatchObject({ delayed: 1, pending: 1 })
    expect(await claim()).toEqual([])
    clock.ms += 100
    expect((await fail('two')).parked.map(text)).toEqual(['doc/1'])
    expect(await observers.get('words')).toMatchObject({ delayed: 0, pending: 0, parked: 1, pendingIsExact: true })
    expect((await observers.parked('words', { limit: 10 })).parked).toMatchObject([{ attempts: 2, error: 'two' }])
    await putNow(store, 'doc/1')
    expect(await claim()).toMatchObject([{ attempt: 3 }])
    clock.ms += 10_000
    expect(await claim()).toEqual([])
    await expect.poll(async () => (await observers.get('words')).parked).toBe(1)
    expect((await observers.parked('words', { limit: 10 })).parked).toMatchObject([
      { attempts: 3, error: 'lease expired', parkedAtMs: clock.ms },
    ])
    expect(await observers.retry('words')).toBe(1)
    expect(await claim()).toMatchObject([{ attempt: 1 }])
    expect(await observers.skip('words', [utf8('doc/1')])).toBe(0)
  })
})

describe('a skip', () => {
  test('counts as a run: no other run commits on the change that was skipped', async () => {
    const { store, observers } = await start()
    await observers.put('words', { ...prefix('doc/'), maxAttempts: 1 })
    await putNow(store, 'doc/1')
    const [failed] = await observers.claim('words', { worker: 'w' })
    if (failed === undefined) throw new Error('nothing to claim')
    await observers.release('words', [{ ...failed, error: 'no' }])
    expect(await observers.skip('words', [utf8('doc/1')])).toBe(1)
    expect(await observers.get('words')).toMatchObject({ pending: 0, parked: 0 })
    expect(await codeOf(runNow(store, 'words', failed))).toBe('write_conflict')

    const startTs = await store.tso(1)
    await observers.notify('words', [utf8('doc/1')])
    const [claimed] = await observers.claim('words', { worker: 'w' })
    if (claimed === undefined) throw new Error('nothing to claim')
    expect(claimed).toMatchObject({ kind: 'notified', attempt: 1 })
    const acks = [{ observer: 'words', key: claimed.key, fence: claimed.fence }]
    const request = { tryOnePc: true, linearizable: true, commitEffects: { acks } }
    const { code, fields } = await failureOf(store.prewrite(prewriteOf(startTs, [], request)))
    expect([code, fields]).toMatchObject(['write_conflict', { reason: 'acknowledged', retryable: true }])
    await runNow(store, 'words', claimed)
    expect(await observers.get('words')).toMatchObject({ pending: 0, acks: 1, conflicts: 2 })
  })
})

describe('the summary', () => {
  test('has the totals of all observers', async () => {
    const clock = new TestClock()
    const store = await stores.open({ now: clock.now })
    const observers = await openObservers(store)
    expect(observers.summary()).toMatchObject({ count: 0, pending: 0, pendingIsExact: true, lagMs: 0 })
    await observers.put('words', { ...prefix('doc/'), maxAttempts: 1 })
    await observers.put('all', prefix(''))
    await putNow(store, 'doc/1', 'doc/2', 'doc/3', 'other')
    const [failed] = await observers.claim('words', { worker: 'w', limit: 2 })
    if (failed === undefined) throw new Error('nothing to claim')
    await observers.release('words', [{ ...failed, error: 'no' }])
    clock.ms += 5000
    await store.tso(1)
    const expected = { count: 2, pending: 6, pendingIsExact: true, claimed: 1, delayed: 0, parked: 1, lagMs: 5000 }
    await expect.poll(() => observers.summary()).toEqual(expected)
  })
})

describe('an observer', () => {
  test('goes on after a restart: entries, failures, pauses and a backfill', async () => {
    const store = await stores.open()
    await putNow(store, 'doc/1', 'doc/2', 'doc/3')
    const before = await openObservers(store)
    await before.put('words', { ...prefix('doc/'), backfill: true, maxAttempts: 1 })
    const all = await before.claim('words', { worker: 'w', limit: 10, waitMs: 5000 })
    expect(all.map(({ kind }) => kind)).toEqual(['backfill', 'backfill', 'backfill'])
    await expect.poll(async () => (await before.get('words')).state).toBe('running')
    await before.release('words', [{ ...(all[0] as (typeof all)[0]), error: 'no' }])
    await before.pause('words')
    await before.close()

    const observers = await openObservers(store)
    expect(await observers.get('words')).toMatchObject({ state: 'paused', pending: 2, parked: 1, pendingIsExact: true })
    expect(await observers.claim('words', { worker: 'w', waitMs: 60_000 })).toEqual([])
    await observers.resume('words')
    const claims = await observers.claim('words', { worker: 'w', limit: 10 })
    expect(keysOf(claims).sort()).toEqual(['doc/2', 'doc/3'])
  })

  test('is not told that a cell is parked which is marked right after it was read at the start', async () => {
    const store = await stores.open()
    const before = await openObservers(store)
    await before.put('words', { ...prefix('doc/'), maxAttempts: 1 })
    await putNow(store, 'doc/1')
    const claims = await before.claim('words', { worker: 'w' })
    await before.release(
      'words',
      claims.map((claim) => ({ ...claim, error: 'no' })),
    )
    await before.close()

    // The mark is told between the read of the cell and its reader, who learns of both in one turn.
    const { register } = store.observed
    const { read } = store.cells
    let late: (() => void) | undefined
    let isFirst = true
    store.observed.register = (observer, listener) => {
      const tell = listener?.marked
      if (listener !== undefined)
        listener.marked = (...mark) => {
          late = () => tell?.apply(listener, mark)
        }
      register.call(store.observed, observer, listener)
    }
    store.cells.read = async (...asked) => {
      const cells = await read.apply(store.cells, asked)
      if (!isFirst) return cells
      isFirst = false
      await putNow(store, 'doc/1')
      return {
        *[Symbol.iterator]() {
          late?.()
          yield* cells
        },
      } as typeof cells
    }
    const observers = await openObservers(store)
    const [claim] = await observers.claim('words', { worker: 'w', waitMs: 5000 })
    expect(claim).toMatchObject({ key: utf8('doc/1') })
    await runNow(store, 'words', ...(claim === undefined ? [] : [claim]))
    expect(await observers.get('words')).toMatchObject({ pending: 0, parked: 0 })
  })

  test('that is removed ends its waiting claims and leaves nothing behind', async () => {
    const { store, observers } = await start()
    await observers.put('words', prefix('doc/'))
    const id = store.observed.named('words')?.id ?? 0
    await putNow(store, 'doc/1')
    await observers.claim('words', { worker: 'w' })
    const waiting = codeOf(observers.claim('words', { worker: 'w', waitMs: 60_000 }))
    await observers.remove('words')
    expect(await waiting).toBe('not_found')
    expect(await codeOf(observers.get('words'))).toBe('not_found')
    await expect.poll(() => store.cells.notifications(id, { after: undefined, limit: 10 })).toEqual([])
  })
})
