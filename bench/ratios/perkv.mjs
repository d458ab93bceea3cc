// PerKV's operations. The bare and the naive server are given the same ones.
import { load } from './load.mjs'
import { fresh, freshMany, keyOf, random, valueAt } from './payload.mjs'
import { get, postJson, postMsgpack, put } from './request.mjs'

export const BATCH = 1000

const putOp = ({ key, value }) => ({ op: 'put', key, value })
const txnOf = (pairs) => ({ ops: pairs.map(putOp) })
/** The values as `bin`, as a client that has bytes would send them. */
const binTxnOf = (pairs) => ({ ops: pairs.map(({ key, value }) => ({ op: 'put', key, value: Buffer.from(value) })) })

const hot = get(`/v1/kv/${keyOf(0)}`)

export const operations = {
  *getHot() {
    yield hot
  },
  *put() {
    const { key, value } = fresh()
    yield put(`/v1/kv/${key}`, value)
  },
  /** @param path of the key by its number; keys are taken uniformly. */
  getUniform: (keys, keyAt = keyOf) =>
    function* () {
      yield get(`/v1/kv/${keyAt(random(keys))}`)
    },
  /** @param keys how many are there to be checked. */
  txn: (keys) =>
    function* () {
      const checks = [{ key: keyOf(random(keys)), exists: true }]
      yield postJson('/v1/txn', { checks, ...txnOf([fresh(), fresh()]) })
    },
  *txnAbsent() {
    const pairs = [fresh(), fresh()]
    yield postJson('/v1/txn', { checks: [{ key: pairs[0].key, exists: false }], ...txnOf(pairs) })
  },
  *bulkJson() {
    yield postJson('/v1/txn', txnOf(freshMany(BATCH)))
  },
  *bulkMsgpack() {
    yield postMsgpack('/v1/txn', binTxnOf(freshMany(BATCH)))
  },
  scanPage: (prefix, limit) =>
    function* () {
      const body = yield get(`/v1/kv?prefix=${prefix}&limit=${limit}`)
      const found = JSON.parse(body).pairs.length
      if (found !== limit) throw new Error(`the scan found ${found} pairs of ${limit}`)
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
