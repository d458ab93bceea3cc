import type { Example } from '../../../src/http/openapi/example.js'
import type { Json } from '../support.js'

/** What an example asks. */
export type Asked = Omit<Example, 'name' | 'answer'>

/**
 * Sends one request and notes it, with its answer, as an example of the operation.
 * @param name undefined: only prepares what follows.
 * @returns the JSON of the answer, or its ETag.
 */
export type Call = (
  operationId: string,
  name: string | undefined,
  asked?: Asked,
) => Promise<{ body: Json; etag: string }>

/** Calls every operation, in an order in which a reader could try them. The first example of each is shown first. */
export async function exampleTour(call: Call, elsewhere: Call): Promise<void> {
  await keys(call)
  await transactions(call)
  await percolator(call) // Before the feed, which pushes the commit timestamps of locks.
  await observers(call)
  await changes(call)
  await webhooks(call)
  await leases(call)
  await administration(call, elsewhere)
  await server(call)
}

async function keys(call: Call): Promise<void> {
  const apple = { path: { key: 'fruit/apple' } }
  const first = await call('putKey', 'A value', { ...apple, body: 'red' })
  const ts = String(first.body['commit_ts'])
  await call('putKey', 'Only over a version', { ...apple, headers: { 'if-match': `"${ts}"` }, body: 'dark red' })
  await call('putKey', 'Only where there is none', { ...apple, headers: { 'if-none-match': '*' }, body: 'blue' })
  const order = { path: { key: 'order/17' }, headers: { 'idempotency-key': '5b0c' }, body: 'paid' }
  await call('putKey', 'Exactly once', order)
  await call('putKey', 'The same again', order)
  await call('putKey', 'Another request under that Idempotency-Key', { ...order, body: 'unpaid' })
  await call('putKey', undefined, { path: { key: 'fruit/pear' }, body: 'green' })
  const { etag } = await call('readKey', 'The latest value', apple)
  await call('readKey', 'A value of the past', { ...apple, query: { ts } })
  await call('readKey', 'Only if it has changed', { ...apple, headers: { 'if-none-match': etag } })
  await call('readKey', 'No such key', { path: { key: 'nobody' } })
  await call('readKey', 'A stream of versions', { ...apple, headers: { accept: 'text/event-stream' } })
  await call('headKey', 'Version and length', apple)
  const page = await call('scanKeys', 'A page', { query: { prefix: 'fruit/', limit: '1' } })
  await call('scanKeys', 'The next page', { query: { cursor: String(page.body['cursor']) } })
  await call('scanKeys', 'Keys of a range, backwards', {
    query: { start: 'fruit/a', end: 'fruit/z', reverse: '', keys_only: '' },
  })
  await call('scanKeys', 'A count', { query: { prefix: 'fruit/', count_only: '' } })
  await call('scanKeys', 'A stream', {
    query: { prefix: 'fruit/' },
    headers: { accept: 'application/x-ndjson' },
  })
  await call('batchGet', 'Some keys', { body: { keys: ['fruit/apple', 'nobody', { base64: '/3Jhdw==' }] } })
  await call('deleteKey', 'A key', { path: { key: 'fruit/pear' } })
  await call('deleteKey', 'Only if it is there', { path: { key: 'fruit/pear' }, headers: { 'if-match': '*' } })
}

async function transactions(call: Call): Promise<void> {
  await call('transact', 'Checks and ops', {
    body: {
      checks: [
        { key: 'fruit/apple', exists: true },
        { key: 'fruit/plum', commit_ts: 0 },
      ],
      ops: [
        { op: 'get', key: 'fruit/apple' },
        { op: 'insert', key: 'fruit/plum', value: 'blue' },
        { op: 'increment', key: 'fruits', by: 2 },
        { op: 'scan', prefix: 'fruit/', limit: 10, keys_only: true },
        { op: 'delete', key: 'fruit/apple' },
      ],
    },
  })
  await call('transact', 'A check that does not hold', {
    body: { checks: [{ key: 'fruit/apple', exists: true }], ops: [{ op: 'put', key: 'fruit/apple', value: 'red' }] },
  })
  await call('transact', 'An insert of what is there', { body: { ops: [{ op: 'insert', key: 'fruits', value: '1' }] } })

  await call('transact', 'An entry of a log', {
    body: { ops: [{ op: 'put', key: { base64: 'bG9n/w==' }, value: 'plums are in', versionstamp: true }] },
  })

  for (const key of ['old/1', 'old/2', 'old/3']) await call('putKey', `A value at ${key}`, { path: { key }, body: 'x' })
  await call('deleteRange', 'Two of three', { query: { prefix: 'old/', limit: '2' } })
  await call('transact', 'A range', { body: { ops: [{ op: 'delete_range', prefix: 'old/' }] } })

  const { body: begun } = await call('beginTransaction', 'Optimistic', { body: {} })
  const txn = String(begun['txn'])
  await call('putKeyInTransaction', 'A value', { path: { txn, key: 'fruit/fig' }, body: 'purple' })
  await call('readKeyInTransaction', 'An own write', { path: { txn, key: 'fruit/fig' } })
  await call('readKeyInTransaction', 'For update', { path: { txn, key: 'fruits' }, query: { for_update: 'true' } })
  await call('headKeyInTransaction', 'Version and length', { path: { txn, key: 'fruits' } })
  await call('deleteKeyInTransaction', 'A key', { path: { txn, key: 'fruit/plum' } })
  await call('scanKeysInTransaction', 'A page', { path: { txn }, query: { prefix: 'fruit/' } })
  await call('runOps', 'An increment', {
    path: { txn },
    body: {
      ops: [
        { op: 'increment', key: 'fruits' },
        { op: 'put', key: { base64: 'bG9n/w==' }, value: 'one more', versionstamp: true },
      ],
    },
  })
  await call('readTransaction', 'An open one', { path: { txn } })
  await call('commitTransaction', 'A commit', { path: { txn }, body: {} })
  await call('rollbackTransaction', 'Too late', { path: { txn }, body: {} })

  const { body: other } = await call('beginTransaction', 'Pessimistic', { body: { mode: 'pessimistic' } })
  const path = { txn: String(other['txn']), key: 'seat/1' }
  await call('putKeyInTransaction', 'A value, locked at once', { path, body: 'Ann' })
  await call('putKey', 'A key that is locked', { path: { key: 'seat/1' }, query: { lock_wait_ms: '0' }, body: 'Ben' })
  await call('putKey', 'A deadline', { path: { key: 'seat/1' }, query: { timeout_ms: '20' }, body: 'Ben' })
  await call('rollbackTransaction', 'A rollback', { path: { txn: path.txn }, body: {} })
  await call('commitTransaction', 'After a rollback', { path: { txn: path.txn }, body: {} })

  const { body: late } = await call('beginTransaction', 'Serializable', { body: { isolation: 'serializable' } })
  const slow = { txn: String(late['txn']), key: 'fruits' }
  await call('putKeyInTransaction', undefined, { path: slow, body: '10' })
  await call('putKey', undefined, { path: { key: 'fruits' }, body: '11' })
  await call('commitTransaction', 'Too late', { path: { txn: slow.txn }, body: {} })
}

async function observers(call: Call): Promise<void> {
  const path = { name: 'words' }
  await call('putObserver', 'A new observer', { path, body: { prefix: 'doc/', max_attempts: 2 } })
  await call('putObserver', 'Other options', { path, body: { prefix: 'doc/', max_attempts: 1 } })
  await call('putObserver', 'Another range', { path, body: { prefix: 'text/' } })
  for (const key of ['doc/1', 'doc/2']) await call('putKey', undefined, { path: { key }, body: 'to be or not to be' })
  const claim = { worker: 'host-7', limit: 2, wait_ms: 1000, values: true }
  const { body: claimed } = await call('claimCells', 'Two cells', { path, body: claim })
  const [one, two] = (claimed['notifications'] as Json[]).map(({ key, fence }) => ({ key, fence }))
  await call('extendClaims', 'A longer lease', { path, body: { claims: [one, two], lease_ms: 20_000 } })
  await call('transact', 'A run of an observer', {
    body: { acks: [{ observer: 'words', ...one }], ops: [{ op: 'put', key: 'count/1', value: '6' }] },
  })
  await call('transact', 'The same run again', { body: { acks: [{ observer: 'words', ...one }] } })
  await call('releaseClaims', 'A failed run', { path, body: { claims: [{ ...two, error: 'no title' }] } })
  await call('listParked', 'What has failed', { path })
  await call('retryParked', 'All', { path, body: {} })
  await call('skipParked', 'One key', { path, body: { keys: ['doc/2'] } })
  await call('notifyObserver', 'One key', { path, body: { keys: ['doc/1'] } })
  await call('readObserver', 'An observer', { path })
  await call('listObservers', 'All')
  await call('pauseObserver', 'A pause', { path, body: {} })
  await call('resumeObserver', 'Its end', { path, body: {} })
  await call('backfillObserver', 'All keys', { path, body: {} })
  await call('deleteObserver', 'An observer', { path })
}

async function changes(call: Call): Promise<void> {
  const { body: lock } = await call('putKey', undefined, { path: { key: 'fruit/kiwi' }, body: 'green' })
  const since = String(Number(lock['commit_ts']) - 1)
  const query = { prefix: 'fruit/', since_ts: since }
  await call('readChanges', 'A page', { query })
  await call('readChanges', 'A stream that begins with a snapshot', {
    query: { prefix: 'fruit/', snapshot: 'true' },
    headers: { accept: 'text/event-stream' },
  })
  await call('readChanges', 'Lines, to the end of what is there', {
    query: { ...query, wait_ms: '0' },
    headers: { accept: 'application/x-ndjson' },
  })
  const path = { name: 'copy' }
  await call('putConsumer', 'A new consumer', { path, body: { prefix: 'fruit/', since_ts: Number(since) } })
  await call('putConsumer', 'It exists', { path, body: { prefix: 'fruit/' } })
  await call('putConsumer', 'Another range', { path, body: { prefix: 'text/' } })
  const { body: page } = await call('readConsumerChanges', 'A page', { path })
  await call('acknowledgeChanges', 'A page', { path, body: { ts: page['next_ts'] } })
  await call('readConsumer', 'A consumer', { path })
  await call('listConsumers', 'All')
  await call('resetConsumer', 'Back', { path, body: { since_ts: Number(since) } })
  await call('deleteConsumer', 'A consumer', { path })
}

async function webhooks(call: Call): Promise<void> {
  const path = { name: 'orders' }
  const body = { url: 'https://hooks.example.com/orders', prefix: 'order/' }
  await call('putWebhook', 'A new webhook', { path, body })
  await call('putWebhook', 'Other options', { path, body: { ...body, batch: 1 } })
  await call('putWebhook', 'A target that is not allowed', { path, body: { ...body, url: 'http://10.0.0.1/' } })
  await call('putWebhook', 'Another range', { path, body: { ...body, prefix: 'text/' } })
  await call('readWebhook', 'A webhook', { path })
  await call('listWebhooks', 'All')
  await call('retryWebhook', 'At once', { path, body: {} })
  await call('skipWebhook', 'The batch that fails', { path, body: {} })
  await call('resetWebhook', 'From now on', { path, body: {} })
  await call('deleteWebhook', 'A webhook', { path })
}

async function percolator(call: Call): Promise<void> {
  await call('percolatorTso', 'Ten timestamps', { body: { count: 10 } })
  const put = (key: string, value: string): Json => ({ op: 'put', key, value })
  await call('percolatorPrewrite', 'Two phases', {
    body: {
      start_ts: 10,
      primary: 'a',
      lock_ttl: 60_000,
      min_commit_ts: 11,
      mutations: [put('a', '1'), put('b', '2')],
    },
  })
  await call('percolatorPrewrite', 'A key that is locked', {
    body: { start_ts: 12, primary: 'b', mutations: [{ op: 'delete', key: 'b' }] },
  })
  await call('percolatorGet', 'A key that is locked', { body: { key: 'b', ts: 25 } })
  await call('percolatorGetLockWaitInfo', 'Nobody waits', { body: {} })
  await call('percolatorScanLock', 'Old locks', { body: { max_ts: 100, limit: 1 } })
  await call('percolatorTxnHeartBeat', 'Two minutes', {
    body: { primary: 'a', start_ts: 10, advise_lock_ttl: 120_000 },
  })
  await call('percolatorTxnHeartBeat', 'Nobody', { body: { primary: 'z', start_ts: 10, advise_lock_ttl: 120_000 } })
  await call('percolatorCommit', 'The primary', { body: { keys: ['a'], start_ts: 10, commit_ts: 20 } })
  await call('percolatorCommit', 'Never prewritten', { body: { keys: ['z'], start_ts: 10, commit_ts: 20 } })
  await call('percolatorCheckTxnStatus', 'A committed transaction', {
    body: { primary: 'a', lock_ts: 10, caller_start_ts: 25, current_ts: 25 },
  })
  await call('percolatorResolveLock', 'A committed transaction', { body: { start_ts: 10, commit_ts: 20 } })
  await call('percolatorGet', 'A key', { body: { key: 'a', ts: 20 } })
  await call('percolatorBatchGet', 'Some keys', { body: { keys: ['a', 'nobody'], ts: 25 } })
  await call('percolatorScan', 'A range', { body: { start: 'a', end: 'c', limit: 10, ts: 25 } })
  await call('percolatorPrewrite', 'Async commit', {
    body: {
      start_ts: 16,
      primary: 'd',
      use_async_commit: true,
      secondaries: ['e'],
      mutations: [put('d', '4'), put('e', '5')],
    },
  })
  await call('percolatorCheckSecondaryLocks', 'A lock', { body: { keys: ['e'], start_ts: 16 } })
  await call('percolatorCleanup', 'Whatever its age', { body: { key: 'e', start_ts: 16, current_ts: 0 } })
  await call('percolatorRollback', 'A transaction', { body: { keys: ['d'], start_ts: 16 } })
  await call('percolatorRollback', 'A committed transaction', { body: { keys: ['a'], start_ts: 10 } })
  await call('percolatorPrewrite', 'One phase', {
    body: { start_ts: 14, primary: 'c', try_one_pc: true, mutations: [{ op: 'insert', key: 'c', value: '3' }] },
  })
  const lock = { keys: ['b', 'f'], primary: 'b', start_ts: 30, for_update_ts: 30 }
  await call('percolatorAcquirePessimisticLock', 'Two keys, with their values', {
    body: { ...lock, return_values: true },
  })
  await call('percolatorAcquirePessimisticLock', 'Keys that are locked', {
    body: { ...lock, start_ts: 32, for_update_ts: 32, wait_timeout: 10 },
  })
  const { start_ts, for_update_ts } = lock
  await call('percolatorPessimisticRollback', 'Two keys', { body: { keys: lock.keys, start_ts, for_update_ts } })
  await call('percolatorValidateReads', 'Two keys', { body: { start_ts: 35, commit_ts: 60, keys: ['a', 'nobody'] } })
  await call('percolatorMvccGetByKey', 'A key', { body: { key: 'a' } })
  await call('percolatorMvccGetByStartTs', 'A transaction', { body: { start_ts: 10 } })
  await call('percolatorDeleteRange', 'A prefix', { body: { start: 'gone/', end: 'gone0' } })
}

async function leases(call: Call): Promise<void> {
  const path = { name: 'jobs/nightly' }
  const { body } = await call('putLease', 'A free lease', { path, body: { holder: 'ann', ttl_ms: 10_000 } })
  const fence = Number(body['fence'])
  await call('putLease', 'A renewal', { path, body: { holder: 'ann', ttl_ms: 10_000, fence } })
  await call('putLease', 'A lease of another', { path, body: { holder: 'bob', ttl_ms: 10_000, wait_ms: 10 } })
  await call('putLease', 'A grant that is over', { path, body: { holder: 'ann', ttl_ms: 10_000, fence: fence - 1 } })
  await call('readLease', 'A lease that is held', { path })
  await call('listLeases', 'All', {})
  const ops = [{ op: 'increment', key: 'reports' }]
  await call('transact', 'Under a lease', { body: { checks: [{ lease: 'jobs/nightly', fence }], ops } })
  await call('releaseLease', 'By its holder', { path, query: { holder: 'ann', fence: String(fence) } })
  await call('transact', 'Under a lease that is lost', { body: { checks: [{ lease: 'jobs/nightly', fence }], ops } })
  await call('readLease', 'A lease that is free', { path })
}

async function administration(call: Call, elsewhere: Call): Promise<void> {
  const { body: pinned } = await call('createPin', 'Now, for a day', { body: { ttl_ms: 86_400_000 } })
  const path = { pin: String(pinned['pin']) }
  await call('listPins', 'All')
  await call('renewPin', 'An hour', { path, body: { ttl_ms: 3_600_000 } })
  await call('deletePin', 'A pin', { path })
  await call('collectGarbage', 'Everything that nobody reads', { body: { life_time_ms: 0 } })
  await call('percolatorGc', 'Up to now', { body: { safe_point: pinned['ts'] } })
  await call('percolatorGet', 'Too old', { body: { key: 'a', ts: 20 } })
  await call('compact', 'Everything', { body: {} })
  await call('readLoad', 'Of a quiet server')
  await call('backUp', 'The newest snapshot')
  await elsewhere('restore', 'A backup', { file: 'perkv.backup' })
}

async function server(call: Call): Promise<void> {
  await call('checkAlive', 'It is')
  await call('checkReady', 'It is')
  await call('readMetrics', 'As Prometheus asks')
  await call('readStatus', 'A server without load')
  await call('readDescription', 'This document')
  await call('readReference', 'This document, for people')
}
