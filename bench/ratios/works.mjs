// What is measured: each work with its contenders, and the ratios of their rates that it is about. A ratio with several
// names in `of` counts for the best of them. `atLeast` and `atMost` are floors, not goals: a third to a half of what is
// reached on a quiet machine, so that a sound checkout holds them on a busy one too, and one that has become three times
// as slow does not. The goals are in docs/performance.md. A ratio without a bound is only shown.
import { asyncCommit, onePc, onePrewrite, twoPc } from './client-txn.mjs'
import { etcdOperations, fillEtcd } from './etcd.mjs'
import { keyOf } from './payload.mjs'
import { BATCH, bulks, fill, fillVersions, operations } from './perkv.mjs'
import { streamScans } from './scan.mjs'
import { settle } from './stage.mjs'
import { scripts } from './wrk.mjs'

const CHECKED_KEYS = 10_000
const wrkRatio = { of: ['perkv, wrk'], over: 'bare, wrk' }

export const works = [
  {
    name: 'get_hot',
    unit: 'requests',
    ratios: [{ of: ['perkv'], over: 'bare', atLeast: 0.35 }, wrkRatio],
    async contenders(stage) {
      const [perkv, bare] = await Promise.all([stage.perkv(), stage.bare()])
      await fill(perkv, 1)
      const script = scripts.getHot(`/v1/kv/${keyOf(0)}`)
      return {
        perkv: stage.cannon(perkv, operations.getHot),
        bare: stage.cannon(bare, operations.getHot),
        ...stage.wrk(perkv, bare, script),
      }
    },
  },
  {
    name: 'get_uniform',
    unit: 'requests',
    ratios: [{ of: ['perkv'], over: 'bare', atLeast: 0.2 }, wrkRatio],
    async contenders(stage) {
      const { keys, cacheBytes } = stage.sizes
      const [perkv, bare] = await Promise.all([stage.perkv('--cache-bytes-max', String(cacheBytes)), stage.bare()])
      await fill(perkv, keys)
      await settle(perkv)
      return {
        perkv: stage.cannon(perkv, operations.getUniform(keys)),
        bare: stage.cannon(bare, operations.getUniform(keys)),
        ...stage.wrk(perkv, bare, scripts.getUniform(keys)),
      }
    },
  },
  {
    name: 'put',
    unit: 'requests',
    ratios: [{ of: ['perkv'], over: 'bare', atLeast: 0.15 }, { of: ['perkv'], over: 'naive', atLeast: 0.4 }, wrkRatio],
    async contenders(stage) {
      const [perkv, bare, naive] = await Promise.all([stage.perkv(), stage.bare(), stage.naive()])
      return {
        perkv: stage.cannon(perkv, operations.put),
        bare: stage.cannon(bare, operations.put),
        naive: stage.cannon(naive, operations.put),
        ...stage.wrk(perkv, bare, scripts.put),
      }
    },
  },
  {
    name: 'txn',
    unit: 'transactions',
    ratios: [
      { of: ['perkv'], over: 'bare', atLeast: 0.12 },
      { of: ['perkv'], over: 'etcd', atLeast: 1 },
      { of: ['perkv, key absent'], over: 'bare' },
    ],
    async contenders(stage) {
      const [perkv, bare, etcd] = await Promise.all([stage.perkv(), stage.bare(), stage.etcd()])
      await fill(perkv, CHECKED_KEYS)
      if (etcd) await fillEtcd(etcd, CHECKED_KEYS)
      return {
        perkv: stage.cannon(perkv, operations.txn(CHECKED_KEYS)),
        'perkv, key absent': stage.cannon(perkv, operations.txnAbsent),
        bare: stage.cannon(bare, operations.txn(CHECKED_KEYS)),
        etcd: stage.cannon(etcd, etcdOperations.txn(CHECKED_KEYS)),
      }
    },
  },
  {
    name: 'get_etcd',
    unit: 'requests',
    ratios: [{ of: ['perkv'], over: 'etcd', atLeast: 3 }],
    async contenders(stage) {
      const [perkv, etcd] = await Promise.all([stage.perkv(), stage.etcd()])
      await fill(perkv, 1)
      if (etcd) await fillEtcd(etcd, 1)
      return { perkv: stage.cannon(perkv, operations.getHot), etcd: stage.cannon(etcd, etcdOperations.getHot) }
    },
  },
  {
    name: 'put_etcd',
    unit: 'requests',
    ratios: [{ of: ['perkv'], over: 'etcd', atLeast: 0.7 }],
    async contenders(stage) {
      const [perkv, etcd] = await Promise.all([stage.perkv(), stage.etcd()])
      return { perkv: stage.cannon(perkv, operations.put), etcd: stage.cannon(etcd, etcdOperations.put) }
    },
  },
  {
    name: 'client_txn',
    unit: 'transactions (bare: requests)',
    ratios: [{ of: ['one_pc', 'async commit', 'two_pc'], over: 'bare', atLeast: 0.08 }],
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
    ratios: [{ of: ['perkv'], over: 'raw', atLeast: 0.25 }],
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
    ratios: [
      {
        of: ['MessagePack x1', 'MessagePack x4', 'MessagePack x8', 'JSON x1', 'JSON x4', 'JSON x8'],
        over: 'raw',
        atLeast: 0.3,
      },
    ],
    async contenders(stage) {
      const [perkv, raw] = await Promise.all([stage.perkv(), stage.raw()])
      const contenders = { raw: (seconds) => raw('bulk', seconds) }
      for (const inFlight of stage.sizes.bulksInFlight) {
        const options = { connections: inFlight, weight: BATCH }
        contenders[`MessagePack x${inFlight}`] = stage.load(perkv, bulks.msgpack, options)
        contenders[`JSON x${inFlight}`] = stage.load(perkv, bulks.json, options)
      }
      return contenders
    },
  },
  ...[
    { work: 'get', unit: 'calls', ofHttp: 3 },
    { work: 'put', unit: 'calls', ofHttp: 1 },
    { work: 'txn', unit: 'transactions', ofHttp: 1 },
  ].map(({ work, unit, ofHttp }) => ({
    name: `embedded_${work}`,
    unit,
    ratios: [
      { of: ['embedded'], over: 'over HTTP', atLeast: ofHttp },
      { of: ['embedded'], over: 'raw' },
    ],
    async contenders(stage) {
      const server = await stage.perkv()
      const [embedded, http, raw] = await Promise.all([stage.db(), stage.db(server.url), stage.raw()])
      for (const fill of [embedded, http, raw]) await fill('fill', CHECKED_KEYS)
      const run = (call) => (seconds) => call(work, seconds, stage.connections, CHECKED_KEYS)
      return { embedded: run(embedded), 'over HTTP': run(http), raw: run(raw) }
    },
  })),
  {
    name: 'versions_get',
    unit: 'requests',
    ratios: [{ of: ['one version'], over: 'many versions', atMost: 2 }],
    async contenders(stage) {
      const perkv = await versioned(stage)
      return {
        'one version': stage.cannon(perkv, operations.getUniform(stage.sizes.versionedKeys, oneVersionKey)),
        'many versions': stage.cannon(perkv, operations.getUniform(stage.sizes.versionedKeys, manyVersionsKey)),
      }
    },
  },
  {
    name: 'versions_scan',
    unit: 'scans',
    ratios: [{ of: ['one version'], over: 'many versions', atMost: 3 }],
    async contenders(stage) {
      const perkv = await versioned(stage)
      const scan = (prefix) =>
        stage.cannon(perkv, operations.scanPage(prefix, stage.sizes.versionedKeys), { connections: 1 })
      return { 'one version': scan('one'), 'many versions': scan('many') }
    },
  },
]

const oneVersionKey = (n) => `one${keyOf(n)}`
const manyVersionsKey = (n) => `many${keyOf(n)}`

/** PerKV without a cache, and as many keys with one version as with many. */
async function versioned(stage) {
  const { versionedKeys, versions } = stage.sizes
  const perkv = await stage.perkv('--cache-bytes-max', '0')
  await fill(perkv, versionedKeys, oneVersionKey)
  await fillVersions(perkv, versionedKeys, versions, manyVersionsKey)
  await settle(perkv)
  return perkv
}
