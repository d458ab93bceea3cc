// Operations on keys that are there, chosen at random.
import { keyOf, random, valueAt } from '../../harness/payload.mjs'
import { get, postJson, put } from '../../harness/requests.mjs'

let values = 0
const value = () => valueAt(values++)

export const uniform = {
  get: (keys) => get(`/v1/kv/${keyOf(random(keys))}`),
  put: (keys) => put(`/v1/kv/${keyOf(random(keys))}`, value()),
  /** One check and two puts. */
  txn(keys) {
    const [checked, ...written] = [random(keys), random(keys), random(keys)].map(keyOf)
    const ops = written.map((key) => ({ op: 'put', key, value: value() }))
    return postJson('/v1/txn', { checks: [{ key: checked, exists: true }], ops })
  },
}
