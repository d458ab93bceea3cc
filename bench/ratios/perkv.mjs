// PerKV's operations. The bare and the naive server are given the same ones.
import { load } from './load.mjs'
import { fresh, freshMany, keyOf, random, valueAt } from './payload.mjs'
import { get, postJson, postMsgpack, put } from './request.mjs'

export const BATCH = 1000

const putOp = ({ key, value }) => ({ op: 'put', key, value })
const txnOf = (pairs) => ({ ops: pairs.map(putOp) })
/** The values as `bin`, as a client that has bytes would send them. */
const binTxnOf = (pairs) => ({ ops: pairs.map(({ key, value }) => ({ op: 'put', key, value: Buffer.from(value) })) })

export const operations = {
  getHot: { request: get(`/v1/kv/${keyOf(0)}`) },
  put: {
    request() {
      const { key, value } = fresh()
      return put(`/v1/kv/${key}`, value)
    },
  },
  /** @param keyAt a key by its number; keys are taken uniformly. */
  getUniform: (keys, keyAt = keyOf) => ({ request: () => get(`/v1/kv/${keyAt(random(keys))}`) }),
  /** @param keys how many are there to be checked. */
  txn: (keys) => ({
    request() {
      const checks = [{ key: keyOf(random(keys)), exists: true }]
      return postJson('/v1/txn', { checks, ...txnOf([fresh(), fresh()]) })
    },
  }),
  txnAbsent: {
    request() {
      const pairs = [fresh(), fresh()]
      return postJson('/v1/txn', { checks: [{ key: pairs[0].key, exists: false }], ...txnOf(pairs) })
    },
  },
  scanPage: (prefix, limit) => ({
    request: get(`/v1/kv?prefix=${prefix}&limit=${limit}`),
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

/** Puts keys 0 to `count` in. */
export async function fill(server, count, keyAt = keyOf) {
  const operation = function* (n) {
    const size = Math.min(BATCH, count - n * BATCH)
    const pairs = Array.from({ length: size }, (_, i) => ({ key: keyAt(n * BATCH + i), value: valueAt(n * BATCH + i) }))
    yield postMsgpack('/v1/txn', binTxnOf(pairs))
  }
  await load({ url: server.url, connections: 4, count: Math.ceil(count / BATCH), operation })
}

/** Writes the same keys again and again, in one transaction each time. */
export async function fillVersions(server, count, versions, keyAt) {
  const operation = function* (version) {
    const pairs = Array.from({ length: count }, (_, n) => ({ key: keyAt(n), value: valueAt(version * count + n) }))
    yield postMsgpack('/v1/txn', binTxnOf(pairs))
  }
  await load({ url: server.url, connections: 1, count: versions, operation })
}
