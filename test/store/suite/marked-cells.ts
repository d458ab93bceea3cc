import { expect } from 'vitest'
import { MARKS_MAX } from '../../../src/limits.js'
import type { StoredNotification } from '../../../src/observers/rules/cell.js'
import type { PrewriteMutation, PrewriteRequest } from '../../../src/percolator/api.js'
import type { CommitEffects } from '../../../src/percolator/commit-effects.js'
import type { CompleteStore } from '../../../src/store/store.js'
import type { Timestamp } from '../../../src/timestamp.js'
import { codeOf, del, failureOf, prewriteOf, put, text, utf8 } from '../support.js'
import type { Contract } from './contract.js'

interface Told {
  readonly marked: string[]
  readonly acknowledged: string[]
}

const OBSERVER = { name: 'words', range: { start: utf8('doc/'), end: utf8('doc0') }, maxDepth: 64 }

/** Commits mark cells, acknowledgements clean them, and each does so in the batch of its transaction. */
export function markedCellCases({ open, test }: Contract): void {
  async function observed() {
    const store = await open()
    const id = await store.tso(1)
    store.observed.register({ ...OBSERVER, id })
    return { store, id }
  }

  async function entryOf(store: CompleteStore, id: Timestamp, key: string): Promise<StoredNotification | undefined> {
    return (await store.cells.read(id, [utf8(key)]))[0]?.notification
  }

  async function commitNow(
    store: CompleteStore,
    mutations: readonly PrewriteMutation[],
    rest: Partial<PrewriteRequest> = {},
  ): Promise<Timestamp> {
    const startTs = rest.startTs ?? (await store.tso(1))
    const answer = await store.prewrite(prewriteOf(startTs, mutations, { tryOnePc: true, linearizable: true, ...rest }))
    return answer.onePcCommitTs ?? 0
  }

  const ack = (fence: Timestamp, key = 'doc/1', rest: Partial<CommitEffects> = {}): CommitEffects => ({
    acks: [{ observer: 'words', key: utf8(key), fence }],
    seesFence: true,
    ...rest,
  })

  test('a commit in one phase marks the observed keys that it puts and deletes', async () => {
    const { store, id } = await observed()
    const commitTs = await commitNow(store, [
      put('doc/1'),
      del('doc/2'),
      { op: 'lock', key: utf8('doc/3') },
      put('other'),
    ])
    expect(await entryOf(store, id, 'doc/1')).toEqual({ changeTs: commitTs, kind: 'put', depth: 0 })
    expect(await entryOf(store, id, 'doc/2')).toEqual({ changeTs: commitTs, kind: 'delete', depth: 0 })
    expect((await store.cells.notifications(id, { after: undefined, limit: 10 })).map(({ key }) => text(key))).toEqual([
      'doc/1',
      'doc/2',
    ])
  })

  test('a key is marked when its own lock is committed or resolved, and not when it is rolled back', async () => {
    const { store, id } = await observed()
    const startTs = await store.tso(1)
    const mutations = ['doc/1', 'doc/2', 'doc/3'].map((key) => put(key))
    await store.prewrite(prewriteOf(startTs, mutations))
    expect(await entryOf(store, id, 'doc/1')).toBeUndefined()
    const commitTs = await store.tso(1)
    await store.commit({ keys: [utf8('doc/1')], startTs, commitTs })
    expect(await entryOf(store, id, 'doc/1')).toEqual({ changeTs: commitTs, kind: 'put', depth: 0 })
    expect(await entryOf(store, id, 'doc/2')).toBeUndefined()
    await store.resolveLock({ txns: [{ startTs, commitTs }], keys: [utf8('doc/2')] })
    expect((await entryOf(store, id, 'doc/2'))?.changeTs).toBe(commitTs)
    await store.resolveLock({ txns: [{ startTs, commitTs: 0 }], keys: [utf8('doc/3')] })
    expect(await entryOf(store, id, 'doc/3')).toBeUndefined()
  })

  test('the flag of an overlapped rollback is no commit', async () => {
    const { store, id } = await observed()
    const startTs = await store.tso(1)
    await store.prewrite(prewriteOf(startTs, [put('doc/1')]))
    const commitTs = await store.tso(1)
    await store.commit({ keys: [utf8('doc/1')], startTs, commitTs })
    const fence = await store.tso(1)
    await commitNow(store, [], { commitEffects: ack(fence) })
    await store.cleanup({ key: utf8('doc/1'), startTs: commitTs, currentTs: 0 })
    expect((await store.mvccGetByKey({ key: utf8('doc/1') })).writes[0]?.overlappedRollback).toBe(true)
    expect(await entryOf(store, id, 'doc/1')).toBeUndefined()
  })

  test('a notification is not hidden by a commit whose timestamp was taken before it', async () => {
    const { store, id } = await observed()
    const startTs = await store.tso(1)
    await store.prewrite(prewriteOf(startTs, [put('doc/1')]))
    const commitTs = await store.tso(1)
    const notifiedTs = await store.cells.change(id, [utf8('doc/1')], ([cell], ts) => ({
      value: ts,
      changes: [{ key: cell?.key ?? utf8(''), notification: { changeTs: ts, kind: 'notified', depth: 0 } }],
    }))
    await store.commit({ keys: [utf8('doc/1')], startTs, commitTs })
    expect(await entryOf(store, id, 'doc/1')).toEqual({ changeTs: notifiedTs, kind: 'notified', depth: 0 })
  })

  test('nor is a change whose cell is parked', async () => {
    const { store, id } = await observed()
    const startTs = await store.tso(1)
    await store.prewrite(prewriteOf(startTs, [put('doc/1')]))
    const commitTs = await store.tso(1)
    const change = { kind: 'notified', depth: 0 } as const
    const parkedTs = await store.cells.change(id, [utf8('doc/1')], (_, ts) => {
      const failure = { attempts: 1, notBeforeMs: 0, error: 'no', parkedTs: ts, changeTs: ts, ...change }
      return { value: ts, changes: [{ key: utf8('doc/1'), notification: null, failure }] }
    })
    await store.commit({ keys: [utf8('doc/1')], startTs, commitTs })
    expect(await entryOf(store, id, 'doc/1')).toEqual({ changeTs: parkedTs, ...change })
  })

  test('a run that began before the only change that is not covered is refused, though the key had a version', async () => {
    const store = await open()
    await commitNow(store, [put('doc/1')])
    const id = await store.tso(1)
    store.observed.register({ ...OBSERVER, id })
    const startTs = await store.tso(1)
    await commitNow(store, [put('doc/1', 'new')])
    const commitEffects = ack(await store.tso(1), 'doc/1', { seesFence: false })
    const error = await failureOf(commitNow(store, [], { startTs, commitEffects }))
    expect(error.fields).toMatchObject({ reason: 'acknowledged', retryable: true })
  })

  test('nothing is marked outside the range, nor after the observer is gone, and its records are swept', async () => {
    const { store, id } = await observed()
    const kept = await store.tso(1)
    store.observed.register({ ...OBSERVER, name: 'kept', id: kept })
    await commitNow(store, [put('doc/1'), put('doc0'), put('doc'), put('')])
    expect(await store.cells.notifications(id, { after: undefined, limit: 10 })).toHaveLength(1)
    store.observed.unregister(id)
    await commitNow(store, [put('doc/2')])
    expect(await store.cells.notifications(id, { after: undefined, limit: 10 })).toHaveLength(1)
    await store.cells.sweep()
    expect(await store.cells.notifications(id, { after: undefined, limit: 10 })).toHaveLength(0)
    expect(await store.cells.notifications(kept, { after: undefined, limit: 10 })).toHaveLength(2)
    expect(await store.cells.notifications(kept, { after: utf8('doc/1'), limit: 10 })).toHaveLength(1)
  })

  test('a sweep goes at its pace, ends at its signal, and the next one goes on', async () => {
    const { store, id } = await observed()
    const keys = Array.from({ length: 1200 }, (_, i) => put(`doc/${i}`))
    await commitNow(store, keys)
    store.observed.unregister(id)
    const left = async () => (await store.cells.notifications(id, { after: undefined, limit: 2000 })).length
    const abort = new AbortController()
    await store.cells.sweep({ pause: async () => abort.abort(), signal: abort.signal })
    expect(await left()).toBeGreaterThan(0)
    expect(await left()).toBeLessThan(1200)
    await store.cells.sweep()
    expect(await left()).toBe(0)
  })

  test('an acknowledgement cleans the cell in the batch of its transaction, whose own write of the key does not mark it', async () => {
    const { store, id } = await observed()
    await commitNow(store, [put('doc/1')])
    const fence = await store.tso(1)
    const startTs = await store.tso(1)
    const commitTs = await commitNow(store, [put('doc/1'), put('doc/2'), put('word')], {
      startTs,
      commitEffects: ack(fence),
    })
    const [cell] = await store.cells.read(id, [utf8('doc/1')])
    const expected = { ackTs: fence, commitTs, startTs }
    expect(cell).toEqual({ key: utf8('doc/1'), notification: undefined, ack: expected, failure: undefined })
    expect(await entryOf(store, id, 'doc/2')).toEqual({ changeTs: commitTs, kind: 'put', depth: 1 })
  })

  test('of two runs on one change one commits, and the refused one writes nothing', async () => {
    const { store } = await observed()
    await commitNow(store, [put('doc/1')])
    const fence = await store.tso(1)
    await commitNow(store, [put('a', '1')], { commitEffects: ack(fence) })
    const error = await failureOf(commitNow(store, [put('a', '2')], { commitEffects: ack(fence) }))
    expect(error.code).toBe('write_conflict')
    expect(error.fields).toMatchObject({
      reason: 'acknowledged',
      observer: 'words',
      key: utf8('doc/1'),
      retryable: false,
    })
    const { writes } = await store.mvccGetByKey({ key: utf8('a') })
    expect(writes).toHaveLength(1)
  })

  test('a change after the fence leaves the cell dirty', async () => {
    const { store, id } = await observed()
    await commitNow(store, [put('doc/1')])
    const fence = await store.tso(1)
    const changeTs = await commitNow(store, [put('doc/1')])
    await commitNow(store, [put('a')], { commitEffects: ack(fence) })
    expect((await entryOf(store, id, 'doc/1'))?.changeTs).toBe(changeTs)
    // Another run under the same fence has seen nothing new.
    expect(await codeOf(commitNow(store, [put('a')], { commitEffects: ack(fence) }))).toBe('write_conflict')
    await commitNow(store, [put('a')], { commitEffects: ack(await store.tso(1)) })
    expect(await entryOf(store, id, 'doc/1')).toBeUndefined()
  })

  test('an acknowledgement alone commits, and its repeat gets the same commit_ts', async () => {
    const { store, id } = await observed()
    await commitNow(store, [put('doc/1')])
    const startTs = await store.tso(1)
    const later = await store.tso(1)
    const commitEffects = ack(startTs, 'doc/1', { seesFence: false })
    const commitTs = await commitNow(store, [], { startTs, commitEffects })
    expect(commitTs).toBeGreaterThan(later)
    expect(await entryOf(store, id, 'doc/1')).toBeUndefined()
    expect(await commitNow(store, [], { startTs, commitEffects })).toBe(commitTs)
    await commitNow(store, [put('doc/1')])
    const secondTs = await store.tso(1)
    const second = ack(secondTs, 'doc/1', { seesFence: false })
    const committed = await commitNow(store, [put('b')], { startTs: secondTs, commitEffects: second })
    store.observed.unregister(id)
    expect(await commitNow(store, [put('b')], { startTs: secondTs, commitEffects: second })).toBe(committed)
  })

  test('a transaction notifies at its commit_ts, one level deeper than what it acknowledges', async () => {
    const { store, id } = await observed()
    const notify = [{ observer: 'words', keys: [utf8('doc/1'), utf8('doc/9')] }]
    const first = await commitNow(store, [put('a')], { commitEffects: { notify } })
    expect(await entryOf(store, id, 'doc/9')).toEqual({ changeTs: first, kind: 'notified', depth: 0 })
    const fence = await store.tso(1)
    const second = await commitNow(store, [], { commitEffects: ack(fence, 'doc/1', { notify }) })
    expect(await entryOf(store, id, 'doc/1')).toEqual({ changeTs: second, kind: 'notified', depth: 1 })
  })

  test('a mark above the greatest depth is parked at once', async () => {
    const { store, id } = await observed()
    store.observed.register({ ...OBSERVER, id, maxDepth: 1 })
    await commitNow(store, [put('doc/0')])
    for (const [from, to] of [
      ['doc/0', 'doc/1'],
      ['doc/1', 'doc/2'],
    ] as const)
      await commitNow(store, [put(to)], { commitEffects: ack(await store.tso(1), from) })
    const [cell] = await store.cells.read(id, [utf8('doc/2')])
    expect(cell?.notification).toBeUndefined()
    expect(cell?.failure).toMatchObject({ attempts: 0, error: expect.stringContaining('max_depth'), depth: 2 })
    expect(cell?.failure?.parkedTs).toBeGreaterThan(0)
  })

  test('commit effects that no transaction may have change nothing', async () => {
    const { store, id } = await observed()
    const changeTs = await commitNow(store, [put('doc/1')])
    const fence = await store.tso(1)
    const future = fence + 1e9
    const twice = { acks: [...(ack(fence).acks ?? []), ...(ack(fence).acks ?? [])] }
    const wrong: [string, Partial<PrewriteRequest>][] = [
      ['not_found', { commitEffects: { acks: [{ observer: 'nobody', key: utf8('doc/1'), fence }] } }],
      ['not_found', { commitEffects: { notify: [{ observer: 'nobody', keys: [utf8('doc/1')] }] } }],
      ['invalid_argument', { commitEffects: ack(fence, 'other') }],
      ['invalid_argument', { commitEffects: { notify: [{ observer: 'words', keys: [utf8('other')] }] } }],
      ['invalid_argument', { commitEffects: ack(future) }],
      ['invalid_argument', { commitEffects: twice }],
      ['invalid_argument', { commitEffects: ack(fence), tryOnePc: false }],
      ['invalid_argument', { commitEffects: ack(fence), maxCommitTs: future }],
    ]
    for (const [code, rest] of wrong) expect(await codeOf(commitNow(store, [put('a')], rest)), code).toBe(code)
    expect(await codeOf(commitNow(store, [], { commitEffects: { notify: [] } }))).toBe('invalid_argument')
    const startTs = await store.tso(1)
    await store.prewrite(prewriteOf(startTs, [put('a')]))
    expect(await codeOf(commitNow(store, [put('a')], { startTs, commitEffects: ack(fence) }))).toBe('invalid_argument')
    await store.rollback({ keys: [utf8('a')], startTs })
    expect((await store.get({ key: utf8('a') })).found).toBe(false)
    expect((await entryOf(store, id, 'doc/1'))?.changeTs).toBe(changeTs)
  })

  test('the listener is told of what is on disk, in order, and asked for the newest fence', async () => {
    const { store, id } = await observed()
    const told: Told = { marked: [], acknowledged: [] }
    let fence = 0
    let conflicts = 0
    store.observed.register(
      { ...OBSERVER, id },
      {
        handedOut: () => ({ fence, hasFailure: false }),
        marked: (key, { kind }) => told.marked.push(`${text(key)} ${kind}`),
        retried: () => {},
        skipped: () => {},
        parkedNow: () => {},
        acknowledged: (key, notification) => told.acknowledged.push(`${text(key)} ${notification?.kind}`),
        conflicted: () => conflicts++,
      },
    )
    await commitNow(store, [put('doc/1'), del('doc/2')])
    const old = await store.tso(1)
    fence = await store.tso(1)
    const error = await failureOf(commitNow(store, [], { commitEffects: ack(old) }))
    expect(error.fields).toMatchObject({ reason: 'superseded', retryable: false })
    expect(conflicts).toBe(1)
    await commitNow(store, [], { commitEffects: ack(fence) })
    expect(told).toEqual({ marked: ['doc/1 put', 'doc/2 delete'], acknowledged: ['doc/1 undefined'] })
  })

  test('a claim that stands answers for the disk, but not for a run that began before it', async () => {
    const { store, id } = await observed()
    const first = await commitNow(store, [put('doc/1')])
    const early = await store.tso(1)
    await commitNow(store, [], { commitEffects: ack(await store.tso(1)) })
    const changeTs = await commitNow(store, [put('doc/1')])
    const fence = await store.tso(1)
    let notification: StoredNotification = { changeTs, kind: 'put', depth: 0 }
    store.observed.register(
      { ...OBSERVER, id },
      {
        handedOut: () => ({ fence, hasFailure: false, notification }),
        marked: () => {},
        retried: () => {},
        skipped: () => {},
        parkedNow: () => {},
        acknowledged: () => {},
        conflicted: () => {},
      },
    )
    // Its snapshot is older than the run that committed.
    const commitEffects = ack(fence, 'doc/1', { seesFence: false })
    notification = { changeTs: first, kind: 'put', depth: 0 }
    expect(await codeOf(commitNow(store, [put('a')], { startTs: early, commitEffects }))).toBe('write_conflict')
    notification = { changeTs, kind: 'put', depth: 0 }
    await commitNow(store, [put('a')], { commitEffects: ack(fence) })
    expect(await entryOf(store, id, 'doc/1')).toBeUndefined()
  })

  test('an acknowledgement takes no failure with it where the listener knows of none, and removes it otherwise', async () => {
    const { store, id } = await observed()
    await commitNow(store, [put('doc/1')])
    const failure = {
      attempts: 1,
      notBeforeMs: 1,
      error: 'x',
      parkedTs: 0,
      changeTs: 1,
      kind: 'put',
      depth: 0,
    } as const
    await store.cells.change(id, [utf8('doc/1')], () => ({ value: 0, changes: [{ key: utf8('doc/1'), failure }] }))
    expect(await store.cells.failures(id, { after: undefined, limit: 9 })).toEqual([{ key: utf8('doc/1'), failure }])
    await commitNow(store, [], { commitEffects: ack(await store.tso(1)) })
    expect(await store.cells.failures(id, { after: undefined, limit: 9 })).toEqual([])
    expect(await store.cells.acks(id, { after: undefined, limit: 9 })).toHaveLength(1)
  })

  test('no acknowledgement and no notification commits ahead of the clock', async () => {
    const { store, id } = await observed()
    await commitNow(store, [put('doc/1')])
    const fence = await store.tso(1)
    const ahead = fence + 1e9
    expect(await codeOf(commitNow(store, [], { startTs: ahead, commitEffects: ack(fence) }))).toBe('invalid_argument')
    expect(await codeOf(commitNow(store, [put('a')], { minCommitTs: ahead, commitEffects: ack(fence) }))).toBe(
      'invalid_argument',
    )
    expect((await entryOf(store, id, 'doc/1'))?.kind).toBe('put')
  })

  test('a notification does not hide a version ahead of the clock', async () => {
    const { store, id } = await observed()
    const ahead = (await store.tso(1)) + 1e9
    await store.prewrite(prewriteOf(ahead, [put('doc/1')]))
    await store.commit({ keys: [utf8('doc/1')], startTs: ahead, commitTs: ahead + 1 })
    await commitNow(store, [], { commitEffects: { notify: [{ observer: 'words', keys: [utf8('doc/1')] }] } })
    expect((await entryOf(store, id, 'doc/1'))?.changeTs).toBe(ahead + 1)
  })

  test('a transaction that would mark too much is refused before it commits, in one phase and in two', {
    tags: ['long'],
  }, async () => {
    const { store, id } = await observed()
    const observers = Math.ceil(MARKS_MAX / 1000)
    for (let i = 1; i < observers; i++) store.observed.register({ ...OBSERVER, name: `o${i}`, id: id + i })
    const mutations = Array.from({ length: 1001 }, (_, i) => put(`doc/${i}`, ''))
    expect(await codeOf(commitNow(store, mutations))).toBe('payload_too_large')
    expect(await codeOf(store.prewrite(prewriteOf(await store.tso(1), mutations)))).toBe('payload_too_large')
    expect(await store.cells.notifications(id, { after: undefined, limit: 1 })).toEqual([])
    expect((await store.scanLock({ maxTs: await store.tso(1) })).locks).toEqual([])
  })

  test('a claim from an earlier observer of the same name counts for nothing', async () => {
    const { store, id } = await observed()
    await commitNow(store, [put('doc/1')])
    const fence = await store.tso(1)
    store.observed.unregister(id)
    store.observed.register({ ...OBSERVER, id: await store.tso(1) })
    await commitNow(store, [put('doc/1')])
    const error = await failureOf(commitNow(store, [], { commitEffects: ack(fence) }))
    expect(error.fields).toMatchObject({ reason: 'superseded', retryable: false })
  })

  test('a claim below the safe point is refused', async () => {
    const { store } = await observed()
    await commitNow(store, [put('doc/1')])
    const fence = await store.tso(1)
    await store.upkeep.raiseSafePoint(await store.tso(1))
    expect(await codeOf(commitNow(store, [], { commitEffects: ack(fence) }))).toBe('ts_below_safe_point')
  })
}
