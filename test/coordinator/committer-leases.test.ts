import { describe, expect, test } from 'vitest'
import { COMMIT_OPTIONS_DEFAULT, Coordinator } from '../../src/coordinator/coordinator.js'
import { isKvError, KvError } from '../../src/errors/kv-error.js'
import { leaseLost } from '../../src/leases/rules/lease.js'
import type { CommitRequest, PrewriteRequest, ValidateReadsRequest } from '../../src/percolator/api.js'
import type { Timestamp } from '../../src/timestamp.js'
import { memoryStores, read, utf8 } from '../store/support.js'
import { FaultyApi } from './faulty-api.js'
import { failureOf } from './support.js'

/** How a transaction is held to its leases where the store cannot commit in one phase. */

const stores = memoryStores()
const SHARED = { ...COMMIT_OPTIONS_DEFAULT, onePhase: false, checksLeasesAtCommit: true }
const LEASES = [{ lease: 'leader', fence: 7, index: 0 }]

async function begun({ lost = false, expired = 0, refuses = false, options = SHARED } = {}) {
  const store = await stores.open()
  const network = new FaultyApi(store)
  let left = expired
  const { api } = network
  const coordinator = new Coordinator(
    {
      ...api,
      prewrite: async (request) => {
        if (!refuses || request.commitEffects === undefined) return api.prewrite(request)
        network.calls.push({ name: 'prewrite', index: 0, request })
        throw new KvError('not_supported', 'no one-phase commit', {})
      },
      validateReads: async (request) => {
        await api.validateReads(request)
        if (lost) throw leaseLost([{ index: 0, lease: 'leader', fence: 9 }])
      },
      commit: async (request) => {
        if (left-- <= 0) return api.commit(request)
        const { startTs, commitTs } = request
        const fields = { key: utf8('a'), startTs, attemptedCommitTs: commitTs, minCommitTs: commitTs + 1 }
        throw new KvError('commit_ts_expired', 'too early', fields)
      },
    },
    options,
  )
  const txn = await coordinator.begin({ mode: 'optimistic', isolation: 'snapshot', lockWaitMs: 0 })
  network.calls.length = 0
  const requests = <T>(name: string) =>
    network.calls.filter((call) => call.name === name).map(({ request }) => request as T)
  const names = () => network.calls.map(({ name }) => name)
  return { store, coordinator, txn, requests, names }
}

test('its leases are checked at the commit_ts, after all prewrites', async () => {
  const { coordinator, txn, requests, names } = await begun()
  await txn.put(utf8('a'), utf8('1'))
  const commitTs = await txn.commit(undefined, { leases: LEASES })
  await coordinator.idle()
  expect(names()).toEqual(['prewrite', 'tso', 'validateReads', 'commit'])
  expect(requests<PrewriteRequest>('prewrite')).toMatchObject([
    { commitEffects: { leases: LEASES, leasesCheckedAtCommit: true } },
  ])
  expect(requests<PrewriteRequest>('prewrite')[0]).not.toHaveProperty('useAsyncCommit')
  expect(requests<ValidateReadsRequest>('validateReads')).toMatchObject([{ leases: LEASES, commitTs }])
})

test('with each other commit_ts they are checked again', async () => {
  const { txn, requests } = await begun({ expired: 2 })
  await txn.put(utf8('a'), utf8('1'))
  const commitTs = await txn.commit(undefined, { leases: LEASES })
  const checks = requests<ValidateReadsRequest>('validateReads')
  expect(checks).toMatchObject([{ leases: LEASES }, { leases: LEASES }, { leases: LEASES }])
  const timestamps: Timestamp[] = checks.map((request) => request.commitTs)
  expect(new Set(timestamps).size).toBe(3)
  expect(timestamps.at(-1)).toBe(commitTs)
  expect(requests<CommitRequest>('commit').at(-1)?.commitTs).toBe(commitTs)
})

test('that lost one commits nothing, and is rolled back', async () => {
  const { store, coordinator, txn, names } = await begun({ lost: true })
  await txn.put(utf8('a'), utf8('1'))
  expect(isKvError(await failureOf(txn.commit(undefined, { leases: LEASES })), 'precondition_failed')).toBe(true)
  await coordinator.idle()
  expect(names()).not.toContain('commit')
  expect(names()).toContain('rollback')
  expect(await read(store, 'a')).toBeUndefined()
})

test('other commit effects still need one phase', async () => {
  const { txn, requests } = await begun()
  await txn.put(utf8('a'), utf8('1'))
  const acks = [{ observer: 'o', key: utf8('k'), fence: 1 }]
  await failureOf(txn.commit(undefined, { leases: LEASES, acks }))
  expect(requests<PrewriteRequest>('prewrite')).toMatchObject([
    { tryOnePc: true, commitEffects: { leases: LEASES, acks } },
  ])
})

describe('a client whose server turns out to be unable to commit in one phase', () => {
  const client = { refuses: true, options: { ...COMMIT_OPTIONS_DEFAULT, checksLeasesAtCommit: false } }

  test('validates the leases itself', async () => {
    const { coordinator, txn, requests, names } = await begun(client)
    await txn.put(utf8('a'), utf8('1'))
    const commitTs = await txn.commit(undefined, { leases: LEASES })
    await coordinator.idle()
    expect(names()).toEqual(['prewrite', 'prewrite', 'tso', 'validateReads', 'commit'])
    const [asked, again] = requests<PrewriteRequest>('prewrite')
    expect(asked).toMatchObject({ tryOnePc: true, commitEffects: { leases: LEASES } })
    for (const field of ['tryOnePc', 'useAsyncCommit', 'commitEffects']) expect(again).not.toHaveProperty(field)
    expect(requests<ValidateReadsRequest>('validateReads')).toMatchObject([{ leases: LEASES, commitTs }])
  })

  test('and attaches no keys', async () => {
    const { txn, names } = await begun(client)
    await txn.put(utf8('a'), utf8('1'), { lease: 'leader' })
    expect(isKvError(await failureOf(txn.commit(undefined, { leases: LEASES })), 'not_supported')).toBe(true)
    expect(names()).toEqual(['prewrite'])
  })
})
