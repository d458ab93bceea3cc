import { expect } from 'vitest'
import type { Failure } from '../../../src/observers/rules/cell.js'
import { ackKey, encodeAckTs, encodeNotified, notifiedKey } from '../../../src/observers/rules/codec/cell-key.js'
import type { RegisteredObserver } from '../../../src/observers/rules/observer.js'
import type { HintedCells } from '../../../src/store/hinted-cells.js'
import type { Store } from '../../../src/store/store.js'
import type { Timestamp } from '../../../src/timestamp.js'
import { del, prewriteOf, put, text, utf8 } from '../support.js'
import type { Contract } from './contract.js'

const RANGE = { start: utf8('doc/'), end: utf8('doc0') }
const ALL = { after: undefined, limit: 100 }
const FAILURE: Failure = {
  ...{ attempts: 2, notBeforeMs: 7, error: 'it failed', parkedTs: 9 },
  ...{ changeTs: 8, kind: 'put', depth: 1 },
}

/** Cells of observers where several servers share the store: commits hint, and whoever works on a cell has only what he has read. */
export function hintedCellCases({ open, test }: Contract): void {
  async function observed(): Promise<{
    store: Store
    cells: HintedCells
    observer: RegisteredObserver
    told: Timestamp[]
  }> {
    const store: Store = await open()
    const { cells } = store
    if (!cells.isShared) throw new Error('the store has no shared cells')
    const id = await store.tso(1)
    const observer = { id, name: 'words', range: RANGE, maxDepth: 64, sinceTs: id }
    const told: Timestamp[] = []
    cells.listen((id) => void told.push(id))
    await cells.follow(async () => [observer])
    return { store, cells, observer, told }
  }

  async function commit(store: Store, ...mutations: Parameters<typeof prewriteOf>[1]): Promise<Timestamp> {
    const startTs = await store.tso(1)
    await store.prewrite(prewriteOf(startTs, mutations))
    const commitTs = await store.tso(1)
    await store.commit({ keys: mutations.map(({ key }) => key), startTs, commitTs })
    return commitTs
  }

  async function hintedKeys(cells: HintedCells, id: Timestamp): Promise<string[]> {
    return (await cells.hinted(id, ALL)).map(({ key }) => text(key))
  }

  test('a prewrite hints at the keys of the range, and its commit is told', async () => {
    const { store, cells, observer, told } = await observed()
    const startTs = await store.tso(1)
    await store.prewrite(prewriteOf(startTs, [put('doc/b'), del('doc/a'), put('other')]))
    expect(await hintedKeys(cells, observer.id)).toEqual(['doc/a', 'doc/b'])
    expect(told).toEqual([])
    await store.commit({ keys: [utf8('doc/b')], startTs, commitTs: await store.tso(1) })
    expect(told).toEqual([observer.id])
    expect(await hintedKeys(cells, observer.id + 1)).toEqual([])
  })

  test('hints and failures come page by page', async () => {
    const { cells, observer } = await observed()
    const { id } = observer
    for (const key of ['c', 'a', 'b']) {
      await cells.hint(id, utf8(key), { commitTs: 5, depth: 0 })
      await cells.replaceFailure(id, { key: utf8(key), failure: undefined }, FAILURE)
    }
    const pages = [cells.hinted.bind(cells), cells.failures.bind(cells)]
    for (const page of pages as readonly ((
      ...given: Parameters<HintedCells['hinted']>
    ) => Promise<readonly { key: Uint8Array }[]>)[]) {
      const read = async (after: Buffer | undefined) =>
        (await page(id, { after, limit: 2 })).map(({ key }) => text(key))
      expect(await read(undefined)).toEqual(['a', 'b'])
      expect(await read(utf8('b'))).toEqual(['c'])
    }
    const other = { ...FAILURE, attempts: FAILURE.attempts + 1 }
    expect(await cells.replaceFailure(id, { key: utf8('b'), failure: undefined }, other)).toBe(false)
    expect(await cells.replaceFailure(id, { key: utf8('b'), failure: other }, undefined)).toBe(false)
    expect(await cells.replaceFailure(id, { key: utf8('b'), failure: FAILURE }, undefined)).toBe(true)
    expect(await cells.failures(id, ALL)).toMatchObject([{ key: utf8('a'), failure: FAILURE }, { key: utf8('c') }])
  })

  test('registrations that were written before a refresh are known after it', async () => {
    const { store, cells, observer } = await observed()
    const registered = [observer]
    await cells.follow(async () => registered)
    registered[0] = { ...observer, id: observer.id + 1, range: { start: utf8('x'), end: utf8('y') } }
    await cells.refresh()
    await commit(store, put('doc/a'), put('xa'))
    expect(await hintedKeys(cells, observer.id)).toEqual([])
    expect(await hintedKeys(cells, observer.id + 1)).toEqual(['xa'])
  })

  test('one of two who have read the same claim gets the cell', async () => {
    const { cells, observer } = await observed()
    const { id } = observer
    await cells.hint(id, utf8('doc/a'), { commitTs: 5, depth: 0 })
    const [read] = await cells.hinted(id, ALL)
    if (read === undefined) throw new Error('there is no hint')
    const wanted = { fence: 10, untilMs: 20, worker: 'one', leaseMs: 10 }
    const claim = await cells.claim(id, read, wanted)
    expect(claim).toMatchObject(wanted)
    expect(await cells.claim(id, read, { ...wanted, worker: 'other' })).toBeUndefined()
    expect((await cells.hinted(id, ALL))[0]?.claim).toMatchObject(wanted)
    if (claim === undefined || claim === 'free') throw new Error('the claim was refused')
    expect(await cells.claim(id, { key: read.key, claim }, undefined)).toBe('free')
    expect((await cells.hinted(id, ALL))[0]).toMatchObject({ hint: { commitTs: 5 }, claim: undefined })
  })

  test('a hint goes only as it was read, and its claim with it', async () => {
    const { cells, observer } = await observed()
    const { id } = observer
    const hint = { commitTs: 5, depth: 0 }
    await cells.hint(id, utf8('doc/a'), hint)
    const [old] = await cells.hinted(id, ALL)
    await cells.hint(id, utf8('doc/a'), hint)
    if (old === undefined) throw new Error('there is no hint')
    await cells.forget(id, old)
    const [renewed] = await cells.hinted(id, ALL)
    if (renewed === undefined) throw new Error('a hint has gone that was renewed')
    await cells.claim(id, renewed, { fence: 10, untilMs: 20, worker: 'w', leaseMs: 10 })
    await cells.forget(id, renewed)
    expect(await cells.hinted(id, ALL)).toEqual([])
  })

  test('a look shows the versions, the lock, the acknowledgement and the notifications of a cell', async () => {
    const { store, cells, observer } = await observed()
    const cell = { id: observer.id, key: utf8('doc/a') }
    const firstTs = await commit(store, put('doc/a', 'first'))
    const acked = { op: 'put', key: ackKey(cell), value: encodeAckTs(firstTs) } as const
    const notified = encodeNotified({ kind: 'notified', depth: 3 })
    const notifying = { op: 'put', key: notifiedKey(cell, firstTs), value: notified } as const
    const ackTs = await commit(store, acked, notifying)
    const secondTs = await commit(store, put('doc/a', 'second'))
    const lockTs = await store.tso(1)
    await store.prewrite(prewriteOf(lockTs, [put('doc/a'), put('doc/b')]))
    const [a, b, c] = await cells.look(observer.id, ['doc/a', 'doc/b', 'doc/c'].map(utf8), firstTs)
    expect(a).toMatchObject({
      ...{ key: utf8('doc/a'), lock: { startTs: lockTs }, newest: { commitTs: secondTs }, seen: { commitTs: firstTs } },
      ...{ ack: { ackTs: firstTs, commitTs: ackTs }, ackKey: acked.key, ackLock: undefined, claim: undefined },
      notified: [{ key: notifying.key, committed: { kind: 'notified', depth: 3, commitTs: ackTs } }],
    })
    expect(a?.hint).toBeDefined()
    expect(b).toMatchObject({ lock: { startTs: lockTs }, newest: undefined, ack: undefined, notified: [] })
    expect(c).toMatchObject({ lock: undefined, hint: undefined, failure: undefined })
    await cells.removeNotified([notifying.key])
    expect((await cells.look(observer.id, [utf8('doc/a')], firstTs))[0]?.notified).toEqual([])
  })

  test('what was to be hinted at later is, once its time has come', async () => {
    const { cells, observer } = await observed()
    const { id } = observer
    for (const [key, ts] of Object.entries({ a: 10, b: 20, c: 30 })) await cells.hintAt(id, utf8(key), ts)
    expect(await hintedKeys(cells, id)).toEqual([])
    expect(await cells.hintDue(id, 20)).toBe(2)
    expect(await hintedKeys(cells, id)).toEqual(['a', 'b'])
    expect(await cells.hintDue(id, 20)).toBe(0)
  })

  test('rows of observers that are gone are swept, and others stay', async () => {
    const { cells, observer } = await observed()
    const gone = observer.id + 1
    for (const id of [observer.id, gone]) {
      await cells.hint(id, utf8('doc/a'), { commitTs: 5, depth: 0 })
      await cells.replaceFailure(id, { key: utf8('doc/a'), failure: undefined }, FAILURE)
      await cells.hintAt(id, utf8('doc/b'), 10)
    }
    await cells.sweep()
    expect(await cells.failures(gone, ALL)).toEqual([])
    expect(await cells.hintDue(gone, 10)).toBe(0)
    expect(await hintedKeys(cells, gone)).toEqual([])
    expect(await cells.failures(observer.id, ALL)).toHaveLength(1)
    expect(await cells.hintDue(observer.id, 10)).toBe(1)
    expect(await hintedKeys(cells, observer.id)).toEqual(['doc/a', 'doc/b'])
  })
}
