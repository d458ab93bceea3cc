import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { sleep } from '../../../src/event-loop/sleep.js'
import { NEWEST_FORMAT } from '../../../src/store/table/format/format-row.js'
import type { Table } from '../../../src/store/table/layout/table.js'
import { text, utf8 } from '../support.js'
import { type JoinedServer, JoinedServers } from './joined-servers.js'

/** Whoever waits with this patience never looks again by himself. */
export const FOR_EVER = 1_000_000
const SERVING = { place: 'here', newest: NEWEST_FORMAT, first: NEWEST_FORMAT }
const WAIT_MS = 60_000
/** Until then a waiter that nobody has told of anything looks as often as one that nobody can. */
const RESTING_MS = 300
const OBSERVER = 'words'

/** Two servers, which wake each other. @param open returns the table as each of them has it, with a patience of `FOR_EVER`. */
export function wakeUpsSuite(
  open: () => Promise<readonly [Table, Table]>,
  tags: { readonly tags?: string[] } = {},
): { watched(): Promise<void> } {
  let one: JoinedServer
  let other: JoinedServer

  beforeAll(async () => {
    const tables = await open()
    const servers = new JoinedServers(tables[0])
    const logs = { beatMs: FOR_EVER, lookMs: FOR_EVER }
    one = await servers.start('one', SERVING, 20, { table: tables[0], logs })
    other = await servers.start('other', SERVING, 20, { table: tables[1], logs })
    await vi.waitFor(() => expect(tables.map(({ broadcast }) => broadcast?.isOpen)).toEqual([true, true]))
  })
  afterAll(async () => {
    await Promise.all([one.close(), other.close()])
  })

  const put = (key: string, value = '') =>
    one.database.transact({
      checks: [],
      ops: [{ op: 'put' as const, key: utf8(key), value: utf8(value) }],
      ...{ maxRetries: 0, lockWaitMs: 0 },
    })
  /** Repeated, because who waits may not have been heard yet. */
  const until = (isSeen: () => boolean, cause: () => Promise<unknown>) =>
    vi.waitFor(async () => {
      if (!isSeen()) await cause()
      expect(isSeen()).toBe(true)
    })

  async function watched(): Promise<void> {
    const end = new AbortController()
    let shown = -1
    const watching = (async () => {
      for await (const state of other.database.changes.watch({ key: utf8('watched'), signal: end.signal }))
        shown = state.found ? Number(text(state.value)) : 0
    })()
    await vi.waitFor(() => expect(shown).toBeGreaterThanOrEqual(0))
    let count = shown
    // The first one may be seen by the only look of its own.
    for (let changes = 0; changes < 3; changes++) {
      const before = count
      await until(
        () => shown > before,
        () => put('watched', `${++count}`),
      )
    }
    end.abort()
    await watching
  }

  test('a watch sees what another server commits', tags, watched)

  test('a waiter gets the lock that another server gives back', tags, async () => {
    const [holding, waiting] = await Promise.all(
      [one, other].map(async ({ database: { transactions } }) => {
        const { txn } = await transactions.begin({ mode: 'pessimistic', isolation: 'snapshot', ttlMs: WAIT_MS })
        return { transactions, txn }
      }),
    )
    const lock = (of: typeof holding) =>
      of?.transactions.put(of.txn, { key: utf8('locked'), value: utf8('1'), lockWaitMs: WAIT_MS })
    await lock(holding)
    let isGranted = false
    const granted = Promise.resolve(lock(waiting)).then(() => {
      isGranted = true
    })
    await vi.waitFor(() => expect(other.database.store.figures.waiting).toBe(1))
    await sleep(RESTING_MS)
    expect(isGranted).toBe(false)
    await holding?.transactions.rollback(holding.txn)
    await until(
      () => isGranted,
      () => put('locked').catch(() => {}),
    )
    await granted
    await waiting?.transactions.rollback(waiting.txn)
  })

  test('a follower of the feed gets what another server commits', tags, async () => {
    const { store, changes } = other.database
    await store.log.begin()
    const end = new AbortController()
    let seen = 0
    const following = (async () => {
      for await (const batch of changes.stream({ sinceTs: store.log.start, heartbeatMs: WAIT_MS, signal: end.signal }))
        seen += batch.filter(({ type }) => type === 'txn').length
    })()
    let count = 0
    // A follower takes two looks when it begins.
    for (let changes = 0; changes < 4; changes++) {
      const before = seen
      await until(
        () => seen > before,
        () => put(`fed ${++count}`),
      )
    }
    end.abort()
    await following
  })

  test('a claim gets what another server commits, and ends where that pauses the observer', tags, async () => {
    await one.database.observers.put(OBSERVER, { range: { prefix: utf8('doc/') } })
    const claim = () => other.database.observers.claim(OBSERVER, { worker: 'w', waitMs: WAIT_MS })
    const waiting = async (): Promise<{
      readonly isOver: () => boolean
      readonly claimed: ReturnType<typeof claim>
    }> => {
      let isOver = false
      const claimed = claim().finally(() => {
        isOver = true
      })
      await sleep(RESTING_MS)
      return { isOver: () => isOver, claimed }
    }
    const first = await waiting()
    let count = 0
    await until(first.isOver, () => put(`doc/${count++}`))
    expect((await first.claimed).map(({ key }) => text(key))).toEqual([expect.stringMatching(/^doc\//)])
    for (let left = 1; left > 0; )
      left = (await other.database.observers.claim(OBSERVER, { worker: 'w', limit: 100 })).length
    const second = await waiting()
    expect(second.isOver()).toBe(false)
    await one.database.observers.pause(OBSERVER)
    expect(await second.claimed).toEqual([])
  })

  return { watched }
}
