// PerKV's operations. The other servers with its routes are given the same ones.
import { load } from './load.mjs'
import { freshMany, keyOf, valueAt } from './payload.mjs'
import { get, postJson, postMsgpack, put } from './request.mjs'

export const BATCH = 1000

const putOp = ({ key, value }) => ({ op: 'put', key, value })
const txnOf = (pairs) => ({ ops: pairs.map(putOp) })
/** The values as `bin`, as a client that has bytes would send them. */
const binTxnOf = (pairs) => ({ ops: pairs.map(({ key, value }) => ({ op: 'put', key, value: Buffer.from(value) })) })

const twoNew = txnOf(['<new1>', '<new2>'].map((key) => ({ key, value: '<value>' })))

/** Of one request each: see `template.mjs`. */
export const operations = {
  getHot: { template: get(`/v1/kv/${keyOf(0)}`) },
  getUniform: (keys, prefix = '') => ({ template: get(`/v1/kv/${prefix}<old>`), keys }),
  put: { template: put('/v1/kv/<new1>', '<value>') },
  putTtl: { template: put('/v1/kv/<new1>?ttl_ms=86400000', '<value>') },
  txn: { template: postJson('/v1/txn', { checks: [{ key: '<new1>', exists: false }], ...twoNew }) },
  txnOfOld: (keys) => ({
    template: postJson('/v1/txn', { checks: [{ key: '<old>', exists: true }], ...twoNew }),
    keys,
  }),
  scanPage: (prefix, limit) => ({
    template: get(`/v1/kv?prefix=${prefix}&limit=${limit}`),
    isRight: (body) => JSON.parse(body).pairs.length === limit,
  }),
}

/** So few fit into a run that those in flight at its end have to count: by load.mjs. */
export const bulks = {
  *json() {
    yield postJson('/v1/txn', txnOf(freshMany(BATCH)))
  },
  *msgpack() {
    yield postMsgpack('/v1/txn', binTxnOf(freshMany(BATCH)))
  },
}

/** Puts keys 0 to below `count` in. */
export async function fill(server, count, prefix = '') {
  const operation = function* (n) {
    const size = Math.min(BATCH, count - n * BATCH)
    const numbers = Array.from({ length: size }, (_, i) => n * BATCH + i)
    yield postMsgpack('/v1/txn', binTxnOf(numbers.map((n) => ({ key: prefix + keyOf(n), value: valueAt(n) }))))
  }
  await load({ url: server.url, connections: 4, count: Math.ceil(count / BATCH), operation })
}

/** Writes the same keys again and again, in one transaction each time. */
export async function fillVersions(server, count, versions, prefix) {
  const operation = function* (version) {
    const pairs = Array.from({ length: count }, (_, n) => ({
      key: prefix + keyOf(n),
      value: valueAt(version * count + n),
    }))
    yield postMsgpack('/v1/txn', binTxnOf(pairs))
  }
  await load({ url: server.url, connections: 1, count: versions, operation })
}
