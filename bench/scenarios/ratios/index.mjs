// What is measured: each work with its contenders, and the ratios of their rates that it is about. Without `over` it is the
// rate itself. A ratio with several names in `of` counts for the best of them.
//
// `goal`: what can be had. `floor`: a third to a half of what is reached on a quiet machine (of versions, which differ more
// from run to run, less), so that a sound checkout holds it on a busy one too, and one that has become three times as slow does
// not. A ratio without either is only shown.
import { settle } from '../../harness/disk.mjs'
import { numbered } from '../../harness/payload.mjs'
import { fill, fillVersions, PUTS_PER_TXN } from '../../harness/perkv.mjs'
import { asyncCommit, onePc, onePrewrite, twoPc } from './client-txn.mjs'
import { etcdOperations, fillEtcd } from './etcd.mjs'
import { bulks, operations, streamScans } from './operations.mjs'
import { scenarioOf } from './ratios.mjs'

/** So many that the version cache holds them all. */
const FEW_KEYS = 10_000
const BULKS_IN_FLIGHT = 4

const works = {
  get_hot: {
    ratios: [
      { of: ['perkv'], over: 'bare', goal: 1.3, floor: 0.5 },
      { of: ['perkv'], over: 'etcd', goal: 4 },
    ],
    async contenders(stage) {
      const servers = await stage.start('perkv', 'bare', 'etcd')
      await fill(servers.perkv, 0, 1)
      if (servers.etcd) await fillEtcd(servers.etcd)
      return stage.singles(servers, operations.getHot, { etcd: etcdOperations.getHot })
    },
  },
  get_uniform: {
    ratios: [{ of: ['perkv'], over: 'bare', goal: 0.8, floor: 0.3 }],
    async contenders(stage) {
      const { keys, cacheBytes } = stage.settings
      const { bare } = await stage.start('bare')
      const perkv = await stage.perkv('--cache-bytes-max', String(cacheBytes))
      await fill(perkv, 0, keys)
      await settle(perkv)
      return stage.singles({ perkv, bare }, operations.getUniform(keys))
    },
  },
  put: {
    ratios: [
      { of: ['perkv'], over: 'bare', goal: 0.55, floor: 0.22 },
      { of: ['perkv'], over: 'one record', goal: 0.75, floor: 0.25 },
      { of: ['perkv'], over: 'naive' },
      { of: ['perkv'], over: 'etcd', goal: 2.5 },
    ],
    async contenders(stage) {
      const servers = await stage.start('perkv', 'bare', 'one record', 'naive', 'etcd')
      return stage.singles(servers, operations.put, { etcd: etcdOperations.put })
    },
  },
  put_ttl: {
    ratios: [{ of: ['perkv, TTL'], over: 'perkv', goal: 0.9, floor: 0.5 }],
    async contenders(stage) {
      const servers = { perkv: await stage.perkv(), 'perkv, TTL': await stage.perkv() }
      return stage.singles(servers, operations.put, { 'perkv, TTL': operations.putTtl })
    },
  },
  txn: {
    ratios: [
      { of: ['perkv'], over: 'bare', goal: 0.45, floor: 0.15 },
      { of: ['perkv'], over: 'etcd', goal: 3.5 },
      { of: ['perkv, old key checked'], over: 'bare' },
    ],
    async contenders(stage) {
      const servers = await stage.start('perkv', 'bare', 'etcd')
      await fill(servers.perkv, 0, FEW_KEYS)
      return {
        ...stage.singles(servers, operations.txn, { etcd: etcdOperations.txn }),
        'perkv, old key checked': stage.single(servers.perkv, operations.txnOfOld(FEW_KEYS)),
      }
    },
  },
  client_txn: {
    ratios: [{ of: ['one_pc', 'async commit', 'two_pc'], over: 'bare', goal: 0.28, floor: 0.08 }],
    async contenders(stage) {
      const { perkv, bare } = await stage.start('perkv', 'bare')
      return {
        one_pc: stage.load(perkv, { operation: onePc }),
        'async commit': stage.load(perkv, { operation: asyncCommit }),
        two_pc: stage.load(perkv, { operation: twoPc }),
        bare: stage.load(bare, { request: onePrewrite }),
      }
    },
  },
  scan: {
    ratios: [{ of: ['perkv'], over: 'raw', goal: 0.5, floor: 0.25 }],
    async contenders(stage) {
      const count = stage.settings.scannedPairs
      const [perkv, raw] = [await stage.perkv(), stage.raw()]
      await fill(perkv, 0, count)
      await raw('fill', count)
      await settle(perkv)
      return {
        perkv: (seconds) => streamScans({ url: perkv.url, prefix: 'key', count, seconds }),
        raw: (seconds) => raw('scan', seconds),
      }
    },
  },
  bulk: {
    ratios: [{ of: ['MessagePack', 'JSON'], over: 'raw', goal: 0.4, floor: 0.3 }],
    async contenders(stage) {
      const [perkv, raw] = [await stage.perkv(), stage.raw()]
      const options = { connections: BULKS_IN_FLIGHT, weight: PUTS_PER_TXN }
      return {
        MessagePack: stage.load(perkv, { request: bulks.msgpack }, options),
        JSON: stage.load(perkv, { request: bulks.json }, options),
        raw: (seconds) => raw('bulk', seconds),
      }
    },
  },
  embedded_get: embedded('get', operations.getUniform(FEW_KEYS), { floor: 1 }, [{ of: ['embedded'], goal: 200_000 }]),
  embedded_put: embedded('put', operations.put, { goal: 1.5, floor: 0.6 }),
  embedded_txn: embedded('txn', operations.txnOfOld(FEW_KEYS), { floor: 0.5 }),
  versions_get: {
    ratios: [{ of: ['many versions'], over: 'one version', goal: 0.77, floor: 0.5 }],
    contenders: (stage) => versioned(stage, (prefix, keys) => operations.getUniform(keys, prefix)),
  },
  versions_scan: {
    ratios: [{ of: ['many versions'], over: 'one version', goal: 0.33, floor: 0.15 }],
    contenders: (stage) => versioned(stage, operations.scanPage, { connections: 1 }),
  },
}

/**
 * Calls of `open`, as many in flight as there are connections, beside the same work as single requests, as calls of `connect`, and by
 * LevelDB alone.
 * @param bounds of its ratio to the requests
 */
function embedded(work, request, bounds, ratios = []) {
  const beside = ['requests', 'client', 'raw'].map((over) => ({ of: ['embedded'], over }))
  return {
    ratios: [...ratios, { ...beside[0], ...bounds }, beside[1], beside[2]],
    async contenders(stage) {
      const server = await stage.perkv()
      const [db, client, raw] = [stage.db(), stage.db(server.url), stage.raw()]
      for (const call of [db, client, raw]) await call('fill', FEW_KEYS)
      const run = (call) => (seconds) => call(work, seconds, stage.settings.connections, FEW_KEYS)
      return { embedded: run(db), requests: stage.single(server, request), client: run(client), raw: run(raw) }
    },
  }
}

/** PerKV without a cache, and as many keys with one version as with many. */
async function versioned(stage, operationOf, options) {
  const { versionedKeys, versions } = stage.settings
  const perkv = await stage.perkv('--cache-bytes-max', '0')
  await fill(perkv, 0, versionedKeys, (n) => numbered('onekey', n))
  await fillVersions(perkv, versionedKeys, versions, (n) => numbered('manykey', n))
  await settle(perkv)
  const contender = (prefix) => stage.single(perkv, operationOf(prefix, versionedKeys), options)
  return { 'one version': contender('one'), 'many versions': contender('many') }
}

export const ratios = Object.fromEntries(Object.entries(works).map(([name, work]) => [name, scenarioOf(name, work)]))
