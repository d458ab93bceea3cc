/**
 * By `operationId`: what does the same in `perkv/client`, after `const db = connect('http://localhost:7400')`. Calls that its
 * users do not make have none.
 */
export const CLIENT_SAMPLES: Readonly<Record<string, string>> = {
  readKey: "const value = await db.get('fruit/apple') // undefined: there is none",
  headKey: "const version = await db.getVersion('fruit/apple') // { value, commitTs }",
  putKey: "const { commitTs } = await db.put('fruit/apple', 'red', { ttl: '30m' })",
  deleteKey: "await db.delete('fruit/apple')",
  scanKeys: "for await (const { key, value } of db.scan({ prefix: 'fruit/' })) console.log(key, value)",
  deleteRange: "const { deleted, more } = await db.deleteRange({ prefix: 'fruit/' })",
  batchGet: "const [apple, fig] = await db.batchGet(['fruit/apple', 'fruit/fig'])",
  transact: `const { results } = await db.atomic({
  checks: [{ key: 'seat/1', value: 'free' }],
  ops: [{ op: 'put', key: 'seat/1', value: 'Ann' }],
})`,
  beginTransaction: `await db.transaction(async (txn) => {
  const seat = await txn.get('seat/1')
  if (seat === 'free') await txn.put('seat/1', 'Ann')
})`,
  commitTransaction: `const txn = await db.begin()
await txn.put('seat/1', 'Ann')
const commitTs = await txn.commit()`,
  rollbackTransaction: `const txn = await db.begin()
await txn.rollback()`,
  listObservers: 'const observers = await db.observers.list()',
  putObserver:
    "await db.observe('mail', { prefix: 'mail/' }, async (txn, change) => txn.put('sent/' + change.key, 'yes'))",
  readObserver: "const { pending, parked } = await db.observers.get('mail')",
  deleteObserver: "await db.observers.delete('mail')",
  claimCells: "const claims = await db.observers.claim('mail', { limit: 10, waitMs: 5000, values: true })",
  notifyObserver: "await db.observers.notify('mail', 'mail/1')",
  backfillObserver: "await db.observers.backfill('mail')",
  pauseObserver: "await db.observers.pause('mail')",
  resumeObserver: "await db.observers.resume('mail')",
  listParked: "for await (const { key, error } of db.observers.parked('mail')) console.log(key, error)",
  retryParked: "await db.observers.retry('mail', ['mail/1'])",
  skipParked: "await db.observers.skip('mail', ['mail/1'])",
  readChanges:
    "for await (const { commitTs, changes } of db.changes({ prefix: 'fruit/' })) console.log(commitTs, changes)",
  listConsumers: 'const consumers = await db.consumers.list()',
  putConsumer: "await db.consumers.put('search', { prefix: 'fruit/' })",
  readConsumer: "const consumer = await db.consumers.get('search')",
  deleteConsumer: "await db.consumers.delete('search')",
  acknowledgeChanges: "await db.consumers.ack('search', commitTs)",
  listLeases: "const leases = await db.leases.list({ prefix: 'job/' })",
  putLease: `const lease = await db.lease('job/7', { ttlMs: 10_000, waitMs: 60_000 })
await db.transaction((txn) => txn.put('report', 'all is well'), { leases: [lease] })`,
  readLease: "const lease = await db.leases.get('job/7')",
  releaseLease: `const lease = await db.lease('job/7', { ttlMs: 10_000 })
await lease.release()`,
  percolatorScanLock: 'for await (const lock of db.locks()) console.log(lock.key)',
  percolatorMvccGetByKey: "const records = await db.mvcc('fruit/apple')",
  readStatus: 'const { version, writable } = await db.status()',
}
