import { describe, expect, test } from 'vitest'
import { beyondAccess, endsAsDecided, isDecidedBeyond } from '../../src/percolator/access.js'
import type { Lock } from '../../src/percolator/lock.js'
import { type Mutation, txnRecord } from '../../src/percolator/row.js'
import type { WriteRecord } from '../../src/percolator/write.js'
import {
  asyncAt,
  bytes,
  KEY,
  lockAt,
  overlapped,
  pessimisticAt,
  protectedRollbackAt,
  putAt,
  rollbackAt,
} from './builders.js'

/** The caller may access keys that begin with `a`. */
const mayAccess = (key: Uint8Array): boolean => key[0] === 0x61
const within = bytes('ap')
const outside = bytes('xp')

describe('whose end it is', () => {
  const listing = (secondaries: readonly string[]): Partial<Lock> => ({
    primary: within,
    secondaries: secondaries.map(bytes),
  })
  const cases: { name: string; lock: Lock; primaryLock?: Lock; isBeyond: boolean }[] = [
    { name: 'the primary is within', lock: lockAt(10, { primary: within }), isBeyond: false },
    { name: 'the primary is outside', lock: lockAt(10, { primary: outside }), isBeyond: true },
    { name: 'pessimistic, within', lock: pessimisticAt(10, { primary: within }), isBeyond: false },
    { name: 'pessimistic, outside', lock: pessimisticAt(10, { primary: outside }), isBeyond: true },
    {
      name: 'async: every key is within',
      lock: asyncAt(10, { primary: within }),
      primaryLock: asyncAt(10, listing(['as', 'at'])),
      isBeyond: false,
    },
    {
      name: 'async: a key is outside',
      lock: asyncAt(10, { primary: within }),
      primaryLock: asyncAt(10, listing(['as', 'xt'])),
      isBeyond: true,
    },
    {
      name: 'async: the primary is outside, whatever it lists',
      lock: asyncAt(10, { primary: outside }),
      primaryLock: asyncAt(10, listing([])),
      isBeyond: true,
    },
    { name: 'async: nobody says which keys there are', lock: asyncAt(10, { primary: within }), isBeyond: true },
    {
      name: 'async: another transaction holds the primary',
      lock: asyncAt(10, { primary: within }),
      primaryLock: asyncAt(12, listing([])),
      isBeyond: true,
    },
    {
      name: 'async: the primary is not prewritten yet',
      lock: asyncAt(10, { primary: within }),
      primaryLock: pessimisticAt(10, listing([])),
      isBeyond: true,
    },
    {
      name: 'async: the primary fell back to two phases',
      lock: asyncAt(10, { primary: within }),
      primaryLock: lockAt(10, listing([])),
      isBeyond: false,
    },
  ]
  for (const { name, lock, primaryLock, isBeyond } of cases)
    test(name, () => expect(isDecidedBeyond(lock, primaryLock, mayAccess)).toBe(isBeyond))
})

describe('what is done to a lock, and what the primary says', () => {
  const unlock: Mutation = { type: 'delete-lock', key: KEY }
  const record = (write: WriteRecord): Mutation => ({ type: 'put-write', key: KEY, write })
  const locked = (lock: Lock): Mutation => ({ type: 'put-lock', key: KEY, lock })
  const changes: Record<string, readonly Mutation[]> = {
    nothing: [],
    'commit at 30': [record(putAt(10, 30)), unlock],
    'commit at 31': [record(putAt(10, 31)), unlock],
    'roll back': [unlock, record(rollbackAt(10))],
    'roll back, a flag': [unlock, record(overlapped(putAt(3, 10)))],
    'roll back, on record before': [unlock],
    'prolong or push': [locked(lockAt(10, { ttlMs: 9000 }))],
  }
  const primaries: Record<string, readonly WriteRecord[]> = {
    nothing: [],
    'another transaction': [putAt(12, 30)],
    'committed at 30': [putAt(10, 30)],
    'rolled back': [protectedRollbackAt(10)],
    'rolled back, a flag': [overlapped(putAt(3, 10))],
  }
  const allowed: Record<string, readonly string[]> = {
    nothing: Object.keys(primaries),
    'commit at 30': ['committed at 30'],
    'commit at 31': [],
    'roll back': ['rolled back', 'rolled back, a flag'],
    'roll back, a flag': ['rolled back', 'rolled back, a flag'],
    'roll back, on record before': ['rolled back', 'rolled back, a flag'],
    'prolong or push': [],
  }
  for (const [change, mutations] of Object.entries(changes))
    for (const [primary, writes] of Object.entries(primaries))
      test(`${change}; the primary says: ${primary}`, () => {
        const isAllowed = allowed[change]?.includes(primary)
        expect(endsAsDecided(lockAt(10), mutations, txnRecord(writes, 10))).toBe(isAllowed)
      })

  test('a pessimistic lock goes once its transaction has ended, either way, and not before', () => {
    for (const mutations of [[unlock], [unlock, record(rollbackAt(10))]])
      for (const [primary, writes] of Object.entries(primaries)) {
        const hasEnded = primary.startsWith('committed') || primary.startsWith('rolled')
        expect(endsAsDecided(pessimisticAt(10), mutations, txnRecord(writes, 10)), primary).toBe(hasEnded)
      }
  })

  test('a pessimistic lock does not become a write', () => {
    for (const mutations of [[locked(lockAt(10))], [record(putAt(10, 31)), unlock]])
      expect(endsAsDecided(pessimisticAt(10), mutations, txnRecord([putAt(10, 30)], 10))).toBe(false)
  })
})

test('a refusal does not name the keys beyond', () => {
  const { code, message } = beyondAccess(bytes('as'), 10)
  expect(code).toBe('forbidden')
  expect(message).toContain('"as"')
  expect(message).not.toContain('xp')
})
