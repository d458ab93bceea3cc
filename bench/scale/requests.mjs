// Kinds of request, as autocannon wants them: each one gets a path and a body of its own.
import { freshKey, key, random, value } from './data.mjs'

const JSON_BODY = 'application/json'

export const each = (make) => [{ setupRequest: (request) => ({ ...request, headers: {}, ...make() }) }]

export const getUniform = (keys) => ({ method: 'GET', path: `/v1/kv/${key(random(keys))}` })
export const putUniform = (keys) => ({ method: 'PUT', path: `/v1/kv/${key(random(keys))}`, body: value() })
export const putFresh = () => ({ method: 'PUT', path: `/v1/kv/${freshKey()}`, body: value() })

/** One check and two puts, of random keys. */
export function txnUniform(keys) {
  const [checked, ...written] = [random(keys), random(keys), random(keys)].map(key)
  const ops = written.map((key) => ({ op: 'put', key, value: value() }))
  const body = JSON.stringify({ checks: [{ key: checked, exists: true }], ops })
  return { method: 'POST', path: '/v1/txn', headers: { 'content-type': JSON_BODY }, body }
}
