// What is measured: each work with its contenders, and the ratios of their rates that it is about. Without `over` it is the
// rate itself. A ratio with several names in `of` counts for the best of them.
//
// `goal`: what can be had. `floor`: a third to a half of what is reached on a quiet machine (of versions, which differ more
// from run to run, less), so that a sound checkout holds it on a busy one too, and one that has become three times as slow does
// not. A ratio without either is only shown.
import { asyncCommit, onePc, onePrewrite, twoPc } from './client-txn.mjs'
import { etcdOperations, fillEtcd } from './etcd.mjs'
import { BATCH, bulks, fill, fillVersions, operations } from './perkv.mjs'
import { streamScans } from './scan.mjs'
import { settle } from './stage.mjs'

/** So many that the version cache holds them all. */
const FEW_KEYS = 10_000
const BULKS_IN_FLIGHT = 4

export const works = [
  {
    name: 'get_hot',
    unit: 'requests',
    ratios: [
      { of: ['perkv'], over: 'bare', goal: 1.3, floor: 0.5 },
      { of: ['perkv'], over: 'etcd', goal: 4 },
    ],
    async contenders(stage) {
      const [perkv, bare, etcd] = await Promise.all([stage.perkv(), stage.bare(), stage.etcd()])
      await fill(perkv, 1)
      if (etcd) await fillEtcd(etcd)
      return {
        perkv: stage.single(perkv, operations.getHot),
        bare: stage.single(bare, operations.getHot),
        etcd: stage.single(etcd, etcdOperations.getHot),
      }
    },
  },
  {
    name: 'get_uniform',
    unit: 'requests',
    ratios: [{ of: ['perkv'], over: 'bare', goal: 0.8, floor: 0.3 }],
    async contenders(stage) {
      const { keys, cacheBytes } = stage.sizes
      const [perkv, bare] = await Promise.all([stage.perkv('--cache-bytes-max', String(cacheBytes)), stage.bare()])
      await fill(perkv, keys)
      await settle(perkv)
      return {
        perkv: stage.single(perkv, operations.getUniform(keys)),
        bare: stage.single(bare, operations.getUniform(keys)),
      }
    },
  },
  {
    name: 'put',
    unit: 'requests',
    ratios: [
      { of: ['perkv'], over: 'bare', goal: 0.55, floor: 0.22 },
      { of: ['perkv'], over: 'one record', goal: 0.75, floor: 0.25 },
      { of: ['perkv'], over: 'naive' },
      { of: ['perkv'], over: 'etcd', goal: 2.5 },
    ],
    async contenders(stage) {
      const [perkv, bare, oneRecord, naive, etcd] = await Promise.all([
        stage.perkv(),
        stage.bare(),
        stage.oneRecord(),
        stage.naive(),
        stage.etcd(),
      ])
      return {
        perkv: stage.single(perkv, operations.put),
        bare: stage.single(bare, operations.put),
        'one record': stage.single(oneRecord, operations.put),
        naive: stage.single(naive, operations.put),
        etcd: stage.single(etcd, etcdOperations.put),
      }
    },
  },
  {
    name: 'put_ttl',
    unit: 'requests',
    ratios: [{ of: ['perkv, TTL'], over: 'perkv', goal: 0.9, floor: 0.5 }],
    async contenders(stage) {
      const [perkv, expiring] = await Promise.all([stage.perkv(), stage.perkv()])
      return {
        perkv: stage.single(perkv, operations.put),
        'perkv, TTL': stage.single(expiring, operations.putTtl),
      }
    },
  },
  {
    name: 'txn',
    unit: 'transactions',
    ratios: [
      { of: ['perkv'], over: 'bare', goal: 0.45, floor: 0.15 },
      { of: ['perkv'], over: 'etcd', goal: 3.5 },
      { of: ['perkv, old key checked'], over: 'bare' },
    ],
    async contenders(stage) {
      const [perkv, bare, etcd] = await Promise.all([stage.perkv(), stage.bare(), stage.etcd()])
      await fill(perkv, FEW_KEYS)
      return {
        perkv: stage.single(perkv, operations.txn),
        'perkv, old key checked': stage.single(perkv, operations.txnOfOld(FEW_KEYS)),
        bare: stage.single(bare, operations.txn),
        etcd: stage.single(etcd, etcdOperations.txn),
      }
    },
  },
  {
    name: 'client_txn',
    unit: 'transactions (bare: requests)',
    ratios: [{ of: ['one_pc', 'async commit', 'two_pc'], over: 'bare', goal: 0.28, floor: 0.08 }],
    async contenders(stage) {
      const [perkv, bare] = await Promise.all([stage.perkv(), stage.bare()])
      return {
        one_pc: stage.load(perkv, onePc),
        'async commit': stage.load(perkv, asyncCommit),
        two_pc: stage.load(perkv, twoPc),
        bare: stage.load(bare, onePrewrite),
      }
    },
  },
  {
    name: 'scan',
    unit: 'pairs',
    ratios: [{ of: ['perkv'], over: 'raw', goal: 0.5, floor: 0.25 }],
    async contenders(stage) {
      const count = stage.sizes.scannedPairs
      const [perkv, raw] = await Promise.all([stage.perkv(), stage.raw()])
      await fill(perkv, count)
      await raw('fill', count)
      await settle(perkv)
      return {
        perkv: (seconds) => streamScans({ url: perkv.url, prefix: 'key', count, seconds }),
        raw: (seconds) => raw('scan', seconds),
      }
    },
  },
  {
    name: 'bulk',
    unit: 'keys',
    ratios: [{ of: ['MessagePack', 'JSON'], over: 'raw', goal: 0.4, floor: 0.3 }],
    async contenders(stage) {
      const [perkv, raw] = await Promise.all([stage.perkv(), stage.raw()])
      const options = { connections: BULKS_IN_FLIGHT, weight: BATCH }
      return {
        MessagePack: stage.load(perkv, bulks.msgpack, options),
        JSON: stage.load(perkv, bulks.json, options),
        raw: (seconds) => raw('bulk', seconds),
      }
    },
  },
  // `embedded`: calls of `open`, as many in flight as there are connections. `requests`: the same work as single requests.
  // `client`: the same calls of `connect`.
  ...[
    {
      work: 'get',
      unit: 'calls',
      request: operations.getUniform(FEW_KEYS),
      ratios: [
        { of: ['embedded'], goal: 200_000 },
        { of: ['embedded'], over: 'requests', floor: 1 },
        { of: ['embedded'], over: 'client' },
      ],
    },
    {
      work: 'put',
      unit: 'calls',
      request: operations.put,
      ratios: [
        { of: ['embedded'], over: 'requests', goal: 1.5, floor: 0.6 },
        { of: ['embedded'], over: 'client' },
      ],
    },
    {
      work: 'txn',
      unit: 'transactions',
      request: operations.txnOfOld(FEW_KEYS),
      ratios: [
        { of: ['embedded'], over: 'requests', floor: 0.5 },
        { of: ['embedded'], over: 'client' },
      ],
    },
  ].map(({ work, unit, request, ratios }) => ({
    name: `embedded_${work}`,
    unit,
    ratios: [...ratios, { of: ['embedded'], over: 'raw' }],
    async contenders(stage) {
      const server = await stage.perkv()
      const [embedded, client, raw] = await Promise.all([stage.db(), stage.db(server.url), stage.raw()])
      for (const call of [embedded, client, raw]) await call('fill', FEW_KEYS)
      const run = (call) => (seconds) => call(work, seconds, stage.connections, FEW_KEYS)
      return {
        embedded: run(embedded),
        requests: stage.single(server, request),
        client: run(client),
        raw: run(raw),
      }
    },
  })),
  {
    name: 'versions_get',
    unit: 'requests',
    ratios: [{ of: ['many versions'], over: 'one version', goal: 0.77, floor: 0.5 }],
    async contenders(stage) {
      const perkv = await versioned(stage)
      const get = (prefix) => stage.single(perkv, operations.getUniform(stage.sizes.versionedKeys, prefix))
      return { 'one version': get('one'), 'many versions': get('many') }
    },
  },
  {
    name: 'versions_scan',
    unit: 'scans',
    ratios: [{ of: ['many versions'], over: 'one version', goal: 0.33, floor: 0.15 }],
    async contenders(stage) {
      const perkv = await versioned(stage)
      const scan = (prefix) =>
        stage.single(perkv, operations.scanPage(prefix, stage.sizes.versionedKeys), { connections: 1 })
      return { 'one version': scan('one'), 'many versions': scan('many') }
    },
  },
]

/** PerKV without a cache, and as many keys with one version as with many. */
async function versioned(stage) {
  const { versionedKeys, versions } = stage.sizes
  const perkv = await stage.perkv('--cache-bytes-max', '0')
  await fill(perkv, versionedKeys, 'one')
  await fillVersions(perkv, versionedKeys, versions, 'many')
  await settle(perkv)
  return perkv
}
