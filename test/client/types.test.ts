import { expectTypeOf, test } from 'vitest'
import type {
  Change,
  ChangedTxn,
  Claim,
  Expiring,
  Lease,
  LeaseInfo,
  ObserverState,
  ScanPair,
  Snapshot,
  Timestamp,
  Txn,
  Versioned,
  Watched,
  Written,
} from '../../src/client/index.js'
import { connect, type ErrorCode, isKvError, type KvError } from '../../src/client/index.js'

/** What the compiler promises to callers. Nothing is run. */

const db = connect('http://kv.test')
const as: 'text' | 'bytes' = Math.random() < 2 ? 'text' : 'bytes'
declare const txn: Txn
declare const snapshot: Snapshot
declare const version: Versioned<'text'> | undefined

test('values are text, and bytes where asked', () => {
  const types = (): void => {
    expectTypeOf(db.get('k')).resolves.toEqualTypeOf<string | undefined>()
    expectTypeOf(db.get(new Uint8Array(), { ts: 1 })).resolves.toEqualTypeOf<string | undefined>()
    expectTypeOf(db.get('k', { as: 'text', at: new Date() })).resolves.toEqualTypeOf<string | undefined>()
    expectTypeOf(db.get('k', { as: 'bytes' })).resolves.toEqualTypeOf<Uint8Array | undefined>()
    expectTypeOf(db.get('k', { as: as as 'text' | 'bytes' })).resolves.toEqualTypeOf<string | Uint8Array | undefined>()
    expectTypeOf(db.getVersion('k', { as: 'bytes' })).resolves.toEqualTypeOf<Versioned<'bytes'> | undefined>()
    expectTypeOf(db.batchGet(['k'])).resolves.toEqualTypeOf<(string | undefined)[]>()
    expectTypeOf(snapshot.get('k', { as: 'bytes' })).resolves.toEqualTypeOf<Uint8Array | undefined>()
    expectTypeOf(txn.get('k')).resolves.toEqualTypeOf<string | undefined>()
    expectTypeOf(txn.getForUpdate('k', { as: 'bytes' })).resolves.toEqualTypeOf<Uint8Array | undefined>()
    expectTypeOf(txn.getVersion('k', { as: 'bytes' })).resolves.toEqualTypeOf<
      Versioned<'bytes', Timestamp | undefined> | undefined
    >()
    expectTypeOf(txn.increment('k')).resolves.toBeNumber()
    expectTypeOf(txn.max('k', 1)).resolves.toBeNumber()
    expectTypeOf(db.put('k', new Uint8Array())).resolves.toEqualTypeOf<Written>()
  }
  expectTypeOf(types).toBeFunction()
})

test('pairs of a scan have what was asked for', () => {
  const types = async (): Promise<void> => {
    for await (const pair of db.scan({ prefix: 'k' }))
      expectTypeOf(pair).toEqualTypeOf<
        { readonly key: string; readonly value: string; readonly commitTs: Timestamp } & Expiring
      >()
    for await (const pair of db.scan({ keysOnly: true }))
      expectTypeOf(pair).toEqualTypeOf<{ readonly key: string; readonly commitTs: Timestamp } & Expiring>()
    for await (const pair of snapshot.scan({ as: 'bytes' }))
      expectTypeOf(pair).toEqualTypeOf<ScanPair<'bytes', false>>()
    for await (const { commitTs } of txn.scan()) expectTypeOf(commitTs).toEqualTypeOf<Timestamp | undefined>()
  }
  expectTypeOf(types).toBeFunction()
})

test('a run gets one change, and a list where a batch is asked for', () => {
  const types = (): void => {
    db.observe('words', { prefix: 'doc/' }, (txn, change) => {
      expectTypeOf(txn).toEqualTypeOf<Txn>()
      expectTypeOf(change).toEqualTypeOf<Change>()
      expectTypeOf(change.value).toEqualTypeOf<string | undefined>()
    })
    const bytes = (_: Txn, changes: readonly Change<'bytes'>[]): void => {
      expectTypeOf(changes.map(({ key }) => key)).toEqualTypeOf<Uint8Array[]>()
    }
    db.observe('words', { start: 'a' }, bytes, { as: 'bytes', batch: 10, onError: (_error, change) => change?.key })
    // @ts-expect-error a list needs a batch
    db.observe('words', { start: 'a' }, bytes, { as: 'bytes' })
    // @ts-expect-error
    db.observe('words', { prefix: 'a', end: 'b' }, () => {})
  }
  expectTypeOf(types).toBeFunction()
})

test('changes have values, old ones where asked, and none of removed ranges', () => {
  const types = async (): Promise<void> => {
    for await (const txn of db.changes({ prefix: 'a', snapshot: true })) {
      expectTypeOf(txn).toEqualTypeOf<ChangedTxn>()
      for (const change of txn.changes) {
        if (change.op === 'put') expectTypeOf(change.value).toEqualTypeOf<string>()
        if (change.op === 'delete') expectTypeOf(change.key).toEqualTypeOf<string>()
        if (change.op === 'delete_range') expectTypeOf(change.end).toEqualTypeOf<Uint8Array>()
        else expectTypeOf(change.old).toEqualTypeOf<undefined>()
        // @ts-expect-error a removed range has no key
        change.key
      }
    }
    for await (const { changes } of db.changes({ keys: ['a'], as: 'bytes', keysOnly: true, oldValues: true }))
      for (const change of changes) {
        if (change.op === 'put') expectTypeOf(change.value).toEqualTypeOf<undefined>()
        if (change.op === 'put') expectTypeOf(change.old).toEqualTypeOf<Versioned<'bytes'> | null>()
      }
    for await (const state of db.watch('k', { as: 'bytes' })) expectTypeOf(state).toEqualTypeOf<Watched<'bytes'>>()
    // @ts-expect-error a misspelt option
    db.changes({ since: 5 })
  }
  expectTypeOf(types).toBeFunction()
})

test('a claim is one of the acknowledgements of a transaction', () => {
  const types = async (): Promise<void> => {
    const claims = await db.observers.claim('words', { values: true, as: 'bytes' })
    expectTypeOf(claims).toEqualTypeOf<Claim<'bytes'>[]>()
    db.transaction(() => 7, { acks: claims })
    db.begin({ acks: [{ observer: 'words', key: 'k', fence: 7 }] })
    expectTypeOf(db.observers.extend('words', claims)).resolves.toEqualTypeOf<Claim<'bytes'>[]>()
    for (const claim of claims) db.observers.release('words', [{ ...claim, error: 'no' }])
    expectTypeOf(db.observers.get('words')).resolves.toEqualTypeOf<ObserverState>()
    // @ts-expect-error
    db.transaction(() => 7, { acks: [{ key: 'k', fence: 7 }] })
  }
  expectTypeOf(types).toBeFunction()
})

test('a transaction gives back what its function gives back', () => {
  const types = (): void => {
    expectTypeOf(db.transaction(async (txn) => txn.get('k'))).resolves.toEqualTypeOf<string | undefined>()
    expectTypeOf(db.transaction(() => 7, { mode: 'pessimistic', isolation: 'serializable' })).resolves.toBeNumber()
    // @ts-expect-error the end is up to db.transaction
    txn.commit()
    // @ts-expect-error a misspelt option
    db.transaction(() => 7, { isolation: 'serialisable' })
  }
  expectTypeOf(types).toBeFunction()
})

test('options that exclude each other do not compile', () => {
  const types = (): void => {
    // @ts-expect-error
    db.scan({ prefix: 'a', end: 'b' })
    // @ts-expect-error
    db.get('k', { ts: 1, at: new Date() })
    // @ts-expect-error
    db.get('k', { as: 'json' })
    // @ts-expect-error
    db.put('k', 7)
    // @ts-expect-error
    db.delete('k', { ifAbsent: true })
    // @ts-expect-error
    db.put('k', 'v', { ifMatch: 1, ifAbsent: true })
    // @ts-expect-error nothing is run again
    db.begin({ retries: 3 })
    // @ts-expect-error
    txn.put('k', 'v', { ifAbsent: true })
  }
  expectTypeOf(types).toBeFunction()
})

test('a condition is not undefined', () => {
  const types = (): void => {
    // @ts-expect-error an absent key has no version
    db.put('k', 'v', { ifMatch: version?.commitTs })
    // @ts-expect-error
    db.delete('k', { ifMatch: version?.commitTs })
    if (version !== undefined) db.put('k', 'v', { ifMatch: version.commitTs, signal: undefined })
    db.put('k', 'v', version === undefined ? { ifAbsent: true } : { ifMatch: version.commitTs })
  }
  expectTypeOf(types).toBeFunction()
})

test('an error’s code decides its fields', () => {
  const types = (error: unknown): void => {
    if (isKvError(error, 'write_conflict')) expectTypeOf(error.fields.conflictCommitTs).toEqualTypeOf<Timestamp>()
    if (isKvError(error, 'already_exists')) expectTypeOf(error.fields.key).toEqualTypeOf<Uint8Array | undefined>()
  }
  expectTypeOf(types).toBeFunction()
  expectTypeOf<KvError['code']>().toEqualTypeOf<ErrorCode>()
})

test('a lease has a fence and a signal, and transactions are held to it', () => {
  const types = async (): Promise<void> => {
    const lease = await db.lease('leader', { ttlMs: 10_000, waitMs: 1000 })
    expectTypeOf(lease).toEqualTypeOf<Lease>()
    expectTypeOf(lease.fence).toEqualTypeOf<Timestamp>()
    expectTypeOf(lease.signal).toEqualTypeOf<AbortSignal>()
    expectTypeOf(lease.expiresAt).toEqualTypeOf<Date>()
    expectTypeOf(lease.release()).resolves.toEqualTypeOf<void>()
    expectTypeOf(db.leases.list({ prefix: 'jobs/' })).resolves.toEqualTypeOf<LeaseInfo[]>()
    expectTypeOf(db.leases.get('leader')).resolves.toEqualTypeOf<LeaseInfo>()
    expectTypeOf(db.transaction(() => 1, { leases: [lease] })).resolves.toEqualTypeOf<number>()
    await db.begin({ leases: [{ name: lease.name, fence: lease.fence }] })
    await db.transaction((txn) => txn.put('k', 'v', { lease, ttl: '1h' }), { leases: [lease] })
    await db.transaction((txn) => txn.insert('k', 'v', { lease: 'leader' }), { leases: [lease] })
    await db.atomic({ ops: [{ op: 'put', key: 'k', value: 'v', lease: 'leader' }] })
    // @ts-expect-error a put outside of a transaction checks no lease
    await db.put('k', 'v', { lease })
    await db.atomic({
      checks: [
        { lease: lease.name, fence: lease.fence },
        { key: 'k', exists: true },
      ],
    })
    // @ts-expect-error a lease needs its ttlMs
    await db.lease('leader', { waitMs: 1000 })
    // @ts-expect-error
    await db.atomic({ checks: [{ lease: lease.name }] })
  }
  expectTypeOf(types).toBeFunction()
})
