import { describe, expect, test, vi } from 'vitest'
import { type Change, type Db, isKvError, type ObserveOptions, type Txn } from '../../../src/client/index.js'
import { collect, failureOf } from '../../coordinator/support.js'
import { BACKENDS, testDbs } from '../backends.js'

const DOCS = { prefix: 'doc/' }
/** Changes of each key, while workers run. */
const PUTS = 4

/** Waits for something that happens by itself soon, or within the time of a test on a busy machine. */
function soon(expectation: () => unknown): Promise<unknown> {
  return vi.waitFor(expectation, { timeout: 50_000, interval: 5 })
}

/** Nothing is left to run. */
function atRest(db: Db, ...names: string[]): Promise<unknown> {
  return soon(async () => {
    for (const name of names) expect(await db.observers.get(name)).toMatchObject({ pending: 0, parked: 0 })
  })
}

/** An event that a test waits for, or makes happen. */
function gate(): { readonly opened: Promise<void>; readonly open: () => void } {
  let open = (): void => {}
  const opened = new Promise<void>((resolve) => {
    open = resolve
  })
  return { opened, open }
}

interface Worker {
  /** Fulfilled when it has ended. */
  stop(): Promise<void>
  readonly ended: Promise<void>
  readonly errors: unknown[]
}

type Options = ObserveOptions<'text'> & { readonly batch?: undefined }

function observing(
  db: Db,
  run: (txn: Txn, change: Change) => unknown,
  options: Options = {},
  { name = 'words', range = DOCS } = {},
): Worker {
  const stop = new AbortController()
  const errors: unknown[] = []
  const onError = (error: unknown): void => void errors.push(error)
  const ended = db.observe(name, range, run, { signal: stop.signal, onError, backoffMs: 1, ...options })
  ended.catch(() => {})
  return {
    ended,
    errors,
    stop() {
      stop.abort()
      return ended
    },
  }
}

describe.each(BACKENDS)('$backend', ({ openDb }) => {
  const start = testDbs(openDb)

  test.each([
    { options: { mode: 'optimistic', isolation: 'snapshot' }, name: 'its writes' },
    { options: { mode: 'optimistic', isolation: 'serializable' }, name: 'its reads' },
  ] as const)('a run in which $name lost every race is a conflict and no failed attempt', async ({ options }) => {
    const { db } = await start()
    let races = 3
    const run = async (txn: Txn, { key }: Change): Promise<void> => {
      await txn.get('n')
      if (races-- > 0) await db.put('n', 'of somebody else')
      await txn.put(options.isolation === 'snapshot' ? 'n' : `seen ${key}`, 'v')
    }
    const worker = observing(db, run, { ...options, retries: 0, maxAttempts: 1 })
    await soon(() => db.observers.get('words'))
    await db.put('doc/1', 'v')
    await soon(async () => expect(await db.observers.get('words')).toMatchObject({ acks: 1, conflicts: 3, parked: 0 }))
    expect(worker.errors).toHaveLength(3)
    await worker.stop()
  })

  test('runs what changes, and what it writes commits with the acknowledgement', async () => {
    const { db } = await start()
    await db.put('doc/before', 'old')
    await db.observers.put('words', DOCS)
    const { commitTs } = await db.put('doc/1', 'one')
    await db.put('other/1', 'x')
    const deleted = await db.delete('doc/2')
    const changes: Change[] = []
    const startTs: number[] = []
    const worker = observing(db, async (txn, change) => {
      changes.push(change)
      startTs.push(txn.startTs)
      expect(await txn.get(change.key)).toBe(change.value)
      await txn.put(`copy/${change.key}`, change.value ?? '')
    })
    await atRest(db, 'words')
    await worker.stop()
    expect(worker.errors).toEqual([])
    expect(changes.toSorted((a, b) => (a.key < b.key ? -1 : 1))).toEqual([
      { key: 'doc/1', value: 'one', commitTs, kind: 'put', attempt: 1 },
      { key: 'doc/2', value: undefined, commitTs: deleted.commitTs, kind: 'delete', attempt: 1 },
    ])
    expect(await db.batchGet(['copy/doc/1', 'copy/doc/2', 'copy/doc/before'])).toEqual(['one', '', undefined])
    expect(await db.observers.get('words')).toMatchObject({ acks: 2, conflicts: 0, claimed: 0 })
    const state = await db.observers.get('words')
    expect(Math.min(...startTs)).toBeGreaterThan(state.sinceTs)
  })

  test('a key that expires is a timer, which has the value that it had', async () => {
    const { db } = await start()
    const worker = observing(db, async (txn, { key, value, kind, old }) => {
      if (value === undefined && kind !== 'delete') await txn.put(`sent/${key}`, old ?? 'unknown')
    })
    await soon(() => db.observers.get('words'))
    await db.put('doc/1', 'remind ann', { ttl: 100 })
    await db.put('doc/2', 'for ever')
    await soon(async () => expect(await db.get('sent/doc/1')).toBe('remind ann'))
    await worker.stop()
    expect([worker.errors, await db.get('sent/doc/2')]).toEqual([[], undefined])
  })

  test('two workers under one name: each change is covered, each run counted once', { tags: ['long'] }, async () => {
    const { db } = await start()
    const keys = Array.from({ length: 11 }, (_, i) => `doc/${i}`)
    let runs = 0
    const run = async (txn: Txn, { key, value }: Change): Promise<void> => {
      await txn.increment(`runs/${key}`)
      await txn.increment(`total/${key.length}`) // Runs conflict here.
      await txn.put(`copy/${key}`, value ?? 'none')
      runs++
    }
    await db.observers.put('words', DOCS)
    const workers = [observing(db, run), observing(db, run, { mode: 'pessimistic', concurrency: 2 })]
    const puts = keys.map(async (key) => {
      for (let i = 1; i <= PUTS; i++) await db.put(key, `${key} ${i}`)
    })
    await Promise.all(puts)
    await atRest(db, 'words')
    for (const worker of workers) await worker.stop()
    expect(await db.batchGet(keys.map((key) => `copy/${key}`))).toEqual(keys.map((key) => `${key} ${PUTS}`))
    const counts = (await db.batchGet(keys.map((key) => `runs/${key}`))).map(Number)
    const committed = counts.reduce((sum, count) => sum + count, 0)
    for (const count of counts) expect(count).toBeLessThanOrEqual(PUTS)
    const { acks } = await db.observers.get('words')
    expect(acks).toBe(committed)
    expect(runs).toBeGreaterThanOrEqual(committed)
    const totals = await db.batchGet(['total/5', 'total/6'])
    expect(totals.reduce((sum, total) => sum + Number(total), 0)).toBe(committed)
  })

  test('changes of one key before a run are one run, with the latest value', async () => {
    const { db } = await start()
    await db.observers.put('words', DOCS)
    for (const value of ['a', 'b', 'c']) await db.put('doc/1', value)
    const values: unknown[] = []
    const worker = observing(db, (_, { value }) => values.push(value))
    await atRest(db, 'words')
    await worker.stop()
    expect(values).toEqual(['c'])
  })

  test('a change during a run is run again', async () => {
    const { db } = await start()
    const values: unknown[] = []
    const worker = observing(db, async (_, { value }) => {
      values.push(value)
      if (value === 'a') await db.put('doc/1', 'b')
    })
    await soon(() => db.observers.get('words'))
    await db.put('doc/1', 'a')
    await soon(() => expect(values).toEqual(['a', 'b']))
    await atRest(db, 'words')
    await worker.stop()
    expect(values).toEqual(['a', 'b'])
  })

  test('after a lost race it is run again, on the value of then', async () => {
    const { db } = await start()
    await db.observers.put('words', DOCS)
    await db.put('doc/1', 'a')
    const values: unknown[] = []
    const worker = observing(db, async (txn, { value }) => {
      values.push(value)
      if (values.length === 1) {
        await db.put('doc/1', 'b')
        await db.put('out', 'of another')
      }
      await txn.put('out', `of ${value}`)
    })
    await atRest(db, 'words')
    await worker.stop()
    expect(values).toEqual(['a', 'b'])
    expect(worker.errors).toEqual([])
    expect(await db.get('out')).toBe('of b')
    expect(await db.observers.get('words')).toMatchObject({ acks: 1 })
  })

  test('failures are tried again, and parked in the end', { tags: ['long'] }, async () => {
    const { db } = await start()
    await db.observers.put('words', DOCS)
    for (const key of ['doc/1', 'doc/poison', 'doc/2']) await db.put(key, 'x')
    let isPoisoned = true
    const failed: unknown[] = []
    const worker = observing(
      db,
      async (txn, { key }) => {
        await txn.increment(`runs/${key}`)
        if (isPoisoned && key === 'doc/poison') throw new Error('I can’t')
      },
      { maxAttempts: 3, onError: (error, change) => failed.push([(error as Error).message, change?.attempt]) },
    )
    await soon(async () => expect(await db.observers.get('words')).toMatchObject({ pending: 0, parked: 1 }))
    expect(failed).toEqual([1, 2, 3].map((attempt) => ['I can’t', attempt]))
    const [parked, ...others] = await collect(db.observers.parked('words'))
    expect(others).toEqual([])
    expect(parked).toMatchObject({ key: 'doc/poison', attempts: 3, error: 'I can’t' })
    expect(parked?.parkedAt).toBeInstanceOf(Date)
    const runs = ['runs/doc/1', 'runs/doc/2', 'runs/doc/poison']
    expect(await db.batchGet(runs)).toEqual(['1', '1', undefined])
    isPoisoned = false
    expect(await db.observers.retry('words')).toBe(1)
    await atRest(db, 'words')
    await worker.stop()
    expect(await db.batchGet(runs)).toEqual(['1', '1', '1'])
  })

  test('a batch is one transaction, and after a failure they are run one by one', { tags: ['long'] }, async () => {
    const { db } = await start()
    await db.observers.put('words', DOCS, { maxAttempts: 2, backoffMs: 1 })
    const keys = Array.from({ length: 25 }, (_, i) => `doc/${String(i).padStart(2, '0')}`)
    await db.transaction(async (txn) => {
      for (const key of keys) await txn.put(key, key)
    })
    const stop = new AbortController()
    const sizes: number[] = []
    const errors: unknown[] = []
    const ended = db.observe(
      'words',
      DOCS,
      async (txn, changes) => {
        sizes.push(changes.length)
        for (const { key, value } of changes) {
          if (key === 'doc/13') throw new Error('bad luck')
          expect(value).toBe(key)
          await txn.increment(`runs/${key}`)
        }
      },
      {
        ...{ batch: 10, concurrency: 1, maxAttempts: 2, backoffMs: 1, signal: stop.signal },
        onError: (_, change) => errors.push(change?.key),
      },
    )
    await soon(async () => expect(await db.observers.get('words')).toMatchObject({ pending: 0, parked: 1 }))
    stop.abort()
    await ended
    expect(errors).toEqual(['doc/13', 'doc/13'])
    expect(sizes.filter((size) => size > 1)).toHaveLength(3)
    const counts = await db.batchGet(keys.map((key) => `runs/${key}`))
    expect(counts).toEqual(keys.map((key) => (key === 'doc/13' ? undefined : '1')))
  })

  test('a stop ends the wait at once, and lets what runs end', async () => {
    const { db } = await start()
    const [begun, rest] = [gate(), gate()]
    const idle = observing(db, () => {}, {}, { name: 'idle', range: { prefix: 'idle/' } })
    const worker = observing(
      db,
      async (txn, { key }) => {
        begun.open()
        await rest.opened
        await txn.put(`copy/${key}`, 'x')
      },
      { concurrency: 1 },
    )
    await soon(async () => expect((await db.observers.get('idle')).workers).toHaveLength(1))
    await idle.stop()
    await soon(() => db.observers.get('words'))
    await db.put('doc/1', 'x')
    await db.put('doc/2', 'x')
    await begun.opened
    const stopped = worker.stop()
    rest.open()
    await stopped
    expect(await db.batchGet(['copy/doc/1', 'copy/doc/2'])).toEqual(['x', undefined])
    expect(await db.observers.get('words')).toMatchObject({ pending: 1, claimed: 0, delayed: 0 })
    await observing(db, () => {}, { signal: AbortSignal.abort() }, { name: 'never' }).ended
    expect(isKvError(await failureOf(db.observers.get('never')), 'not_found')).toBe(true)
  })

  test('close stops it', async () => {
    const { db, another } = await start()
    const other = await another()
    const [begun, rest] = [gate(), gate()]
    const worker = observing(db, async (txn, { key }) => {
      begun.open()
      await rest.opened
      await txn.put(`copy/${key}`, 'x')
    })
    await soon(() => db.observers.get('words'))
    await db.put('doc/1', 'x')
    await begun.opened
    const closed = db.close()
    rest.open()
    await Promise.all([closed, worker.ended])
    expect(worker.errors).toEqual([])
    if (db !== other && (await other.get('copy/doc/1').catch(() => undefined)) !== undefined)
      expect(await other.get('copy/doc/1')).toBe('x')
    expect(await failureOf(db.observe('words', DOCS, () => {}))).toBeInstanceOf(TypeError)
  })

  test('a worker that dies loses its claims, and a failed attempt is counted', async () => {
    const { db } = await start()
    await db.observers.put('words', DOCS, { backoffMs: 1 })
    await db.put('doc/1', 'x')
    const [claim] = await db.observers.claim('words', { leaseMs: 100, values: true })
    expect(claim).toMatchObject({ observer: 'words', key: 'doc/1', value: 'x', found: true, attempt: 1 })
    const attempts: number[] = []
    const worker = observing(db, (_, { attempt }) => attempts.push(attempt))
    await atRest(db, 'words')
    await worker.stop()
    expect(attempts).toEqual([2])
    // It was slow only: its run does not count any more.
    const late = db.transaction((txn) => txn.put('out', 'of the dead'), { acks: claim ? [claim] : [] })
    expect(await failureOf(late)).toMatchObject({ code: 'write_conflict', fields: { reason: 'acknowledged' } })
    expect(await db.get('out')).toBeUndefined()
  })

  test('a chain: what one observer writes is what the other observes', { tags: ['long'] }, async () => {
    const { db } = await start()
    const [words, totals] = [
      observing(db, async (txn, { key, value = '' }) => {
        await txn.put(`count/${key.slice(4)}`, String(value.split(' ').length))
      }),
      observing(
        db,
        async (txn) => {
          let total = 0
          for await (const { value } of txn.scan({ prefix: 'count/' })) total += Number(value)
          await txn.put('total', String(total))
        },
        { isolation: 'serializable' },
        { name: 'totals', range: { prefix: 'count/' } },
      ),
    ]
    await soon(async () => expect(await db.observers.list()).toHaveLength(2))
    await Promise.all([1, 2, 3, 4, 5].map((n) => db.put(`doc/${n}`, Array(n).fill('word').join(' '))))
    await atRest(db, 'words', 'totals')
    expect(await db.get('total')).toBe('15')
    await Promise.all([words.stop(), totals.stop()])
    expect([...words.errors, ...totals.errors]).toEqual([])
  })

  test('notifications mark keys without changing them', { tags: ['long'] }, async () => {
    const { db } = await start()
    await db.observers.put('words', DOCS)
    await db.observers.put('clusters', { start: 'cluster/', end: 'cluster0' })
    await db.put('cluster/1', 'of two')
    const { value: before } = (await db.getVersion('cluster/1')) ?? {}
    const changes: unknown[] = []
    const workers = [
      observing(db, (txn, { key }) => txn.notify('clusters', 'cluster/1', `cluster/${key}`, 'cluster/1')),
      observing(
        db,
        (_, { key, kind, value }) => changes.push([key, kind, value]),
        {},
        { name: 'clusters', range: { start: 'cluster/', end: 'cluster0' } as never },
      ),
    ]
    await atRest(db, 'clusters')
    await db.put('doc/1', 'x')
    await atRest(db, 'words', 'clusters')
    expect(changes).toEqual([
      ['cluster/1', 'put', before],
      ...[
        ['cluster/1', 'notified', before],
        ['cluster/doc/1', 'notified', undefined],
      ],
    ])
    await db.transaction((txn) => txn.notify('words', 'doc/1'))
    await db.observers.notify('clusters', 'cluster/2')
    await atRest(db, 'words', 'clusters')
    expect(changes.slice(3).map((change) => (change as string[])[0])).toContain('cluster/2')
    for (const worker of workers) await worker.stop()
    const outside = failureOf(db.transaction((txn) => txn.notify('words', 'elsewhere')))
    expect(await outside).toMatchObject({ code: 'invalid_argument' })
    expect(await failureOf(db.transaction((txn) => txn.notify('nobody', 'k')))).toMatchObject({ code: 'not_found' })
  })

  test('a loop of one’s own: a transaction that acknowledges is not run again when another was first', async () => {
    const { db } = await start()
    await db.observers.put('words', DOCS)
    await db.put('doc/1', 'x')
    const claims = await db.observers.claim('words', { worker: 'me', limit: 5, values: true, as: 'bytes' })
    expect(claims).toHaveLength(1)
    expect(await db.observers.extend('words', claims, { leaseMs: 60_000 })).toEqual([])
    const stale = claims.map((claim) => ({ ...claim, fence: claim.fence - 1 }))
    expect(await db.observers.extend('words', stale)).toEqual(stale)
    let runs = 0
    const run = async (txn: Txn): Promise<void> => {
      runs++
      await txn.increment('runs')
    }
    await db.transaction(run, { acks: claims })
    const refusal = await failureOf(db.transaction(run, { acks: claims }))
    expect(refusal).toMatchObject({ code: 'write_conflict', fields: { reason: 'acknowledged', observer: 'words' } })
    expect(runs).toBe(2)
    expect(await db.get('runs')).toBe('1')
    // A change that came meanwhile: somebody has to claim again.
    await db.put('doc/1', 'y')
    const again = await failureOf(db.transaction(run, { acks: claims }))
    expect(again).toMatchObject({ code: 'write_conflict', fields: { reason: 'acknowledged', retryable: true } })
    expect(runs).toBe(3)
    const [claim] = await db.observers.claim('words')
    expect(claim).toMatchObject({ key: 'doc/1', value: undefined, found: undefined })
    const txn = await db.begin({ acks: claim ? [claim] : [] })
    expect(await txn.commit()).toBeGreaterThan(txn.startTs)
    expect(await db.observers.claim('words')).toEqual([])
  })

  test('claims that are released come back, as failures where an error is given', { tags: ['long'] }, async () => {
    const { db } = await start()
    await db.observers.put('words', DOCS, { maxAttempts: 2, backoffMs: 60_000 })
    await db.put('doc/1', 'x')
    const release = async (rest: object) => {
      const claims = await db.observers.claim('words')
      return db.observers.release(
        'words',
        claims.map((claim) => ({ ...claim, ...rest })),
      )
    }
    expect(await release({})).toEqual({ released: 1, parked: [] })
    expect(await release({ error: 'no', retryAfterMs: 1 })).toEqual({ released: 1, parked: [] })
    await soon(async () => expect(await db.observers.get('words')).toMatchObject({ delayed: 0, pending: 1 }))
    expect(await release({ error: 'never' })).toEqual({ released: 1, parked: ['doc/1'] })
    expect(await db.observers.skip('words', ['doc/1', 'doc/2'])).toBe(1)
    expect(await collect(db.observers.parked('words'))).toEqual([])
  })

  test('keys and values that are no text are given as bytes, or parked', async () => {
    const { db } = await start()
    await db.observers.put('words', DOCS)
    const binary = new Uint8Array([...new TextEncoder().encode('doc/'), 255])
    await db.put(binary, 'text')
    await db.put('doc/1', new Uint8Array([255]))
    const refused = await failureOf(db.observers.claim('words', { limit: 2 }))
    expect(refused).toBeInstanceOf(TypeError)
    const failed: unknown[] = []
    const worker = observing(db, () => {}, {
      maxAttempts: 1,
      onError: (error, change) => failed.push([(error as Error).message, change]),
    })
    await soon(async () => expect(await db.observers.get('words')).toMatchObject({ pending: 0, parked: 2 }))
    await worker.stop()
    for (const failure of failed) expect(failure).toEqual([expect.stringContaining('is not UTF-8 text'), undefined])
    await db.observers.retry('words', [binary, 'doc/1'])
    const stop = new AbortController()
    const seen: Change<'bytes'>[] = []
    const run = (_: Txn, change: Change<'bytes'>): unknown => seen.push(change)
    const ended = db.observe('words', DOCS, run, { as: 'bytes', signal: stop.signal })
    await atRest(db, 'words')
    stop.abort()
    await ended
    expect(seen.find(({ key }) => key.length === 5 && key[4] === 255)?.value).toEqual(new TextEncoder().encode('text'))
    expect(seen.find(({ key }) => key[4] === 49)?.value).toEqual(new Uint8Array([255]))
  })

  test('a backfill runs the keys that exist, once', async () => {
    const { db } = await start()
    for (const key of ['doc/1', 'doc/2']) await db.put(key, 'x')
    const kinds: string[] = []
    const backfilled = async (): Promise<void> => {
      const worker = observing(db, (_, { kind }) => kinds.push(kind), { backfill: true })
      await soon(async () => {
        expect(await db.observers.get('words')).toMatchObject({ state: 'running', pending: 0 })
        expect(kinds.length).toBeGreaterThan(1)
      })
      await worker.stop()
    }
    await backfilled()
    await backfilled() // As a worker that is started again.
    expect(kinds).toEqual(['backfill', 'backfill'])
    await db.observers.backfill('words')
    const worker = observing(db, (_, { kind }) => kinds.push(kind))
    await soon(() => expect(kinds).toHaveLength(4))
    await worker.stop()
  })

  test('a worker leaves the options alone that it is not given', async () => {
    const { db } = await start()
    await db.observers.put('words', DOCS, { maxAttempts: 3, maxDepth: 0, backoffMs: 7 })
    await observing(db, () => {}, { backoffMs: 8 }).stop()
    expect(await db.observers.get('words')).toMatchObject({ maxAttempts: 3, maxDepth: 0, backoffMs: 8 })
    await db.observers.put('words', DOCS)
    expect(await db.observers.get('words')).toMatchObject({ maxAttempts: 16, maxDepth: 64, backoffMs: 200 })
  })

  test('a pause holds runs back, and a resume lets them go on', async () => {
    const { db } = await start()
    const keys: string[] = []
    const worker = observing(db, (_, { key }) => keys.push(key))
    await soon(() => db.observers.get('words'))
    await db.observers.pause('words')
    await db.put('doc/1', 'x')
    expect(await db.observers.get('words')).toMatchObject({ state: 'paused', pending: 1, claimed: 0 })
    expect(keys).toEqual([])
    await db.observers.resume('words')
    await atRest(db, 'words')
    await worker.stop()
    expect(keys).toEqual(['doc/1'])
    expect(worker.errors).toEqual([])
  })

  test('rejects when there is no sense in going on', async () => {
    const { db } = await start()
    await db.observers.put('words', DOCS)
    const elsewhere = failureOf(db.observe('words', { prefix: 'other/' }, () => {}))
    expect(await elsewhere).toMatchObject({ code: 'already_exists' })

    const removed = observing(db, () => {})
    await soon(async () => expect((await db.observers.get('words')).workers).toHaveLength(1))
    await db.observers.delete('words')
    expect(await failureOf(removed.ended)).toMatchObject({ code: 'not_found' })

    const thrown = new Error('enough')
    const strict = observing(
      db,
      () => {
        throw new Error('a failure')
      },
      {
        onError: () => {
          throw thrown
        },
      },
    )
    await soon(() => db.observers.get('words'))
    await db.put('doc/1', 'x')
    expect(await failureOf(strict.ended)).toBe(thrown)
    expect(await db.observers.get('words')).toMatchObject({ claimed: 0, pending: 1 })
  })
})
