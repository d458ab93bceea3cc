// PerKV's operations. The other servers with its routes are given the same ones.
import { once } from 'node:events'
import http from 'node:http'
import { repeat } from '../../harness/load.mjs'
import { freshMany, keyOf } from '../../harness/payload.mjs'
import { PUTS_PER_TXN } from '../../harness/perkv.mjs'
import { get, postJson, put, putAll, putAllAsJson } from '../../harness/requests.mjs'

const NEWLINE = 10
const twoNew = ['<new1>', '<new2>'].map((key) => ({ op: 'put', key, value: '<value>' }))
const txn = (check) => postJson('/v1/txn', { checks: [check], ops: twoNew })

/** Of one request each: see `template.mjs`. */
export const operations = {
  getHot: { template: get(`/v1/kv/${keyOf(0)}`) },
  getUniform: (keys, prefix = '') => ({ template: get(`/v1/kv/${prefix}<old>`), keys }),
  put: { template: put('/v1/kv/<new1>', '<value>') },
  putTtl: { template: put('/v1/kv/<new1>?ttl_ms=86400000', '<value>') },
  txn: { template: txn({ key: '<new1>', exists: false }) },
  txnOfOld: (keys) => ({ template: txn({ key: '<old>', exists: true }), keys }),
  scanPage: (prefix, limit) => ({
    template: get(`/v1/kv?prefix=${prefix}&limit=${limit}`),
    isRight: (body) => JSON.parse(body).pairs.length === limit,
  }),
}

/** So few fit into a run that those in flight at its end have to count. */
export const bulks = {
  json: () => putAllAsJson(freshMany(PUTS_PER_TXN)),
  msgpack: () => putAll(freshMany(PUTS_PER_TXN)),
}

/** Scans everything as a stream of lines, one scan at a time. @returns pairs a second. */
export const streamScans = ({ url, prefix, count, seconds }) =>
  repeat(seconds, async () => {
    const found = await countLines(`${url}/v1/kv?prefix=${prefix}`)
    if (found !== count) throw new Error(`the scan found ${found} pairs of ${count}`)
    return found
  })

async function countLines(url) {
  const [response] = await once(http.get(url, { headers: { accept: 'application/x-ndjson' } }), 'response')
  if (response.statusCode !== 200) throw new Error(`the scan was answered with ${response.statusCode}`)
  let lines = 0
  for await (const chunk of response)
    for (let at = chunk.indexOf(NEWLINE); at >= 0; at = chunk.indexOf(NEWLINE, at + 1)) lines++
  return lines
}
