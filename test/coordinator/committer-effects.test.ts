import { describe, expect, test } from 'vitest'
import { ConnectionError } from '../../src/client/http/connection-error.js'
import { COMMIT_OPTIONS_DEFAULT, Coordinator } from '../../src/coordinator/coordinator.js'
import type { Transaction, TransactionOptions } from '../../src/coordinator/transaction.js'
import { KvError } from '../../src/errors/kv-error.js'
import type { PrewriteAnswer, PrewriteRequest } from '../../src/percolator/api.js'
import type { CommitEffects } from '../../src/percolator/commit-effects.js'
import type { Store } from '../../src/store/store.js'
import { memoryStores, read, text, utf8 } from '../store/support.js'
import { FaultyApi } from './faulty-api.js'
import { failureOf } from './support.js'

/** What the committer sends for a transaction with commit effects, and what it makes of each answer. The server's part is scripted. */

const stores = memoryStores()
const OPTIMISTIC: TransactionOptions = { mode: 'optimistic', isolation: 'snapshot', lockWaitMs: 0 }
/** A batch per key, if it cut batches. */
const NETWORK = { ...COMMIT_OPTIONS_DEFAULT, batchBytes: 1 }
const IN_PROCESS = { ...COMMIT_OPTIONS_DEFAULT, isInProcess: true, triesMax: 1 }

/** One answer of the server. `lost`: the request was carried out or not, and nobody hears of it. `store`: what the store says. */
type Answer = 'lost' | 'store' | PrewriteAnswer | KvError

interface Setting {
  readonly store: Store
  readonly network: FaultyApi
  readonly txn: Transaction
  readonly prewrites: PrewriteRequest[]
  /** Answers to come, in order. */
  readonly answers: Answer[]
  commit(commitEffects?: CommitEffects): Promise<number>
}

async function begun(
  answers: Answer[],
  {
    commitOptions = NETWORK,
    options = OPTIMISTIC,
  }: { commitOptions?: typeof NETWORK; options?: TransactionOptions } = {},
): Promise<Setting> {
  const store = await stores.open()
  const network = new FaultyApi(store)
  const prewrites: PrewriteRequest[] = []
  const prewrite = async (request: PrewriteRequest): Promise<PrewriteAnswer> => {
    prewrites.push(request)
    const { commitEffects: _, ...others } = request
    const answer = answers.shift()
    if (answer === 'store') return network.api.prewrite(others)
    if (answer instanceof KvError) throw answer
    if (answer === undefined || answer === 'lost') throw new ConnectionError('lost', { mayHaveTakenEffect: true })
    return answer
  }
  const coordinator = new Coordinator({ ...network.api, prewrite }, commitOptions)
  const txn = await coordinator.begin(options)
  network.calls.length = 0
  const commit = (commitEffects = ackAt(txn.startTs)): Promise<number> => txn.commit(undefined, commitEffects)
  return { store, network, txn, prewrites, answers, commit }
}

const names = ({ calls }: FaultyApi): string[] => calls.map(({ name }) => name)

function ackAt(fence: number, key = 'doc/1'): CommitEffects {
  return { acks: [{ observer: 'words', key: utf8(key), fence }] }
}

interface Refusal {
  readonly reason?: 'acknowledged' | 'superseded'
  readonly retryable?: boolean
  /** The last run of the cell. */
  readonly last?: readonly [startTs: number, commitTs: number]
}

function refusal({ reason = 'acknowledged', retryable = false, last = [0, 0] }: Refusal): KvError<'write_conflict'> {
  const key = utf8('doc/1')
  const conflict = { conflictStartTs: last[0], conflictCommitTs: last[1] }
  const fields = { key, startTs: 1, ...conflict, primary: key, reason, observer: 'words', retryable }
  return new KvError('write_conflict', 'refused', fields)
}

describe('one request', () => {
  test('all mutations in one, whatever their size, with the commit effects', async () => {
    const { network, txn, prewrites, commit } = await begun([{ onePcCommitTs: 9 }])
    for (const key of ['a', 'b', 'c']) await txn.put(utf8(key), utf8('mine'))
    const commitEffects = { ...ackAt(txn.startTs), notify: [{ observer: 'other', keys: [utf8('x')] }] }
    expect(await commit(commitEffects)).toBe(9)
    expect(names(network)).toEqual([])
    expect(prewrites).toHaveLength(1)
    expect(prewrites[0]).toMatchObject({ tryOnePc: true, linearizable: true, primary: utf8('a'), commitEffects })
    expect(prewrites[0]?.mutations.map(({ key }) => text(key))).toEqual(['a', 'b', 'c'])
    for (const field of ['useAsyncCommit', 'secondaries', 'maxCommitTs']) expect(prewrites[0]).not.toHaveProperty(field)
  })

  test.each([
    ['over a network', NETWORK, OPTIMISTIC],
    ['without 1PC otherwise', { ...NETWORK, onePhase: false }, OPTIMISTIC],
    ['in process', IN_PROCESS, { ...OPTIMISTIC, isFirst: true }],
    ['serializable', NETWORK, { ...OPTIMISTIC, isolation: 'serializable' as const }],
    ['pessimistic', NETWORK, { ...OPTIMISTIC, mode: 'pessimistic' as const }],
  ])('nothing written: the first acknowledged key is the primary (%s)', async (_, commitOptions, options) => {
    const { txn, prewrites, commit } = await begun([{ onePcCommitTs: 9 }], { commitOptions, options })
    expect(await commit()).toBe(9)
    expect(txn.commitTs).toBe(9)
    expect(prewrites).toMatchObject([
      { mutations: [], primary: utf8('doc/1'), tryOnePc: true, commitEffects: { acks: [{}] } },
    ])
    expect(await txn.commit()).toBe(9)
    expect(prewrites).toHaveLength(1)
  })

  test('serializable: what it read is validated, though nothing is written', async () => {
    const { txn, prewrites, commit } = await begun([{ onePcCommitTs: 9 }], {
      options: { ...OPTIMISTIC, isolation: 'serializable' },
    })
    await txn.get(utf8('r'))
    await commit()
    expect(prewrites[0]?.reads).toMatchObject({ keys: [utf8('r')] })
  })

  test('pessimistic: the locked keys go with it', async () => {
    const { txn, prewrites, commit } = await begun([{ onePcCommitTs: 9 }], {
      options: { ...OPTIMISTIC, mode: 'pessimistic' },
    })
    await txn.getForUpdate(utf8('a'))
    await commit()
    expect(prewrites).toMatchObject([{ primary: utf8('a'), mutations: [{ op: 'lock' }], pessimisticActions: ['do'] }])
  })

  test('without any commit effect in it: nothing to send', async () => {
    const { txn, prewrites, commit } = await begun([])
    expect(await commit({ acks: [], notify: [{ observer: 'words', keys: [] }] })).toBe(txn.startTs)
    expect(prewrites).toEqual([])
  })

  test.each([NETWORK, IN_PROCESS])('a server that prewrites instead: nothing is committed', async (commitOptions) => {
    const options = { ...OPTIMISTIC, isFirst: true }
    const { store, network, txn, commit } = await begun([{ minCommitTs: 7 }], { commitOptions, options })
    await txn.put(utf8('a'), utf8('mine'))
    expect(await commit().catch(String)).toMatch(/commit effects/)
    expect(names(network)).not.toContain('commit')
    expect(await read(store, 'a')).toBeUndefined()
    expect(txn.state).toBe('rolled_back')
  })
})

describe('a lost answer', () => {
  test('is repeated', async () => {
    const { prewrites, commit } = await begun(['lost', 'lost', { onePcCommitTs: 9 }])
    expect(await commit()).toBe(9)
    expect(prewrites).toHaveLength(3)
    expect(new Set(prewrites.map(({ startTs }) => startTs)).size).toBe(1)
  })

  test('with mutations: the primary tells in the end that it committed', async () => {
    const { store, network, txn, prewrites, commit, answers } = await begun([])
    await txn.put(utf8('a'), utf8('mine'))
    answers.push('lost', 'lost', 'lost')
    const { onePcCommitTs } = await store.prewrite(prewriteOf(txn))
    expect(await commit()).toBe(onePcCommitTs)
    expect(prewrites).toHaveLength(3)
    expect(names(network)).toContain('checkTxnStatus')
  })

  test('with mutations: the primary makes a late copy impossible', async () => {
    const { store, txn, commit } = await begun(['lost', 'lost', 'lost'])
    await txn.put(utf8('a'), utf8('mine'))
    expect(await ended(commit())).toBe('write_conflict')
    expect(await ended(store.prewrite(prewriteOf(txn)))).toBe('write_conflict')
  })

  test('without mutations: undetermined, nobody is asked, and another commit finds out', async () => {
    const { network, txn, prewrites, commit, answers } = await begun(['lost', 'lost', 'lost'])
    expect(await ended(commit())).toBe('undetermined')
    expect(await ended(commit())).toBe('undetermined')
    answers.push('lost', { onePcCommitTs: 9 })
    expect(await commit()).toBe(9)
    expect(txn.commitTs).toBe(9)
    expect(names(network)).toEqual([])
    expect(prewrites).toHaveLength(8)
  })

  test('in process, without mutations: the repetition is not the first try', async () => {
    const { prewrites, commit, answers } = await begun([new KvError('storage_unavailable', 'disk', {})], {
      commitOptions: IN_PROCESS,
      options: { ...OPTIMISTIC, isFirst: true },
    })
    expect(await ended(commit())).toBe('undetermined')
    answers.push({ onePcCommitTs: 9 })
    expect(await commit()).toBe(9)
    expect(prewrites.map(({ isFirst }) => isFirst ?? false)).toEqual([true, false])
  })

  test('without mutations: another commit takes no notice of an abort', async () => {
    const abort = new AbortController()
    const { commit, answers } = await begun([], { options: { ...OPTIMISTIC, signal: abort.signal } })
    expect(await ended(commit())).toBe('undetermined')
    abort.abort(new Error('enough'))
    answers.push({ onePcCommitTs: 9 })
    expect(await commit()).toBe(9)
  })
})

describe('a refused acknowledgement', () => {
  const cases = [
    { name: 'claim again', refused: { retryable: true, last: [5, 50] } },
    { name: 'drop it', refused: {} },
    { name: 'handed out again', refused: { reason: 'superseded' } },
  ] as const
  test.each(cases)('ends the transaction: $name', async ({ refused }) => {
    const { network, txn, commit } = await begun([refusal(refused)])
    expect(await ended(commit())).toBe('write_conflict')
    expect(txn.state).toBe('rolled_back')
    expect(names(network)).toEqual([])
  })

  test.each(cases)('with mutations, no copy can commit later: $name', async ({ refused }) => {
    const { store, network, txn, commit } = await begun([refusal(refused)])
    await txn.put(utf8('a'), utf8('mine'))
    expect(await ended(commit())).toBe('write_conflict')
    // Of a refusal that stands for ever there is nothing to rule out.
    if ('retryable' in refused) return expect(names(network)).toEqual([])
    expect(await ended(store.prewrite(prewriteOf(txn)))).toBe('write_conflict')
  })

  // Of the transaction's start_ts.
  const after = [
    { name: 'another run that began before and committed since', last: [-5, 5], want: 'write_conflict' },
    { name: 'a run that began later: it may have followed this one', last: [5, 9], want: 'undetermined' },
    { name: 'an old run: the first request may still be on its way', last: [-9, -5], want: 'undetermined' },
    { name: 'nobody', last: undefined, want: 'undetermined' },
  ] as const
  test.each(after)('after a lost answer, without mutations, by $name: $want', async ({ last, want }) => {
    const { txn, commit, answers } = await begun([])
    const at = (ts: number): number => txn.startTs + ts
    answers.push('lost', refusal({ retryable: true, ...(last && { last: [at(last[0]), at(last[1])] }) }))
    expect(await ended(commit())).toBe(want)
  })
})

/** The code of a failure. */
async function ended(promise: Promise<unknown>): Promise<unknown> {
  const error = await failureOf(promise)
  return 'code' in error ? error.code : error
}

function prewriteOf({ startTs }: Transaction): PrewriteRequest {
  const mutations = [{ op: 'put' as const, key: utf8('a'), value: utf8('mine') }]
  return { mutations, primary: utf8('a'), startTs, lockTtl: 3000, tryOnePc: true }
}
