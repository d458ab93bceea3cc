// The kinds of transactions of `transactions.mjs`, as operations of a load.
import { random } from '../harness/payload.mjs'
import { get, postJson, put } from '../harness/requests.mjs'

const KEYS = 100_000
let next = 0

/** @param i of a connection */
export const WORK = {
  *'put of a known key'(_, i) {
    yield put(`/v1/kv/own${i}`, 'value')
  },
  /** After the puts. */
  *get(_, i) {
    yield get(`/v1/kv/own${i}`)
  },
  *put() {
    yield put(`/v1/kv/new${next++}`, 'value')
  },
  *transfer() {
    const first = random(KEYS)
    const ops = [first, (first + 1 + random(KEYS)) % (KEYS + 1)].map((n, i) => ({
      ...{ op: 'increment', key: `account${n}`, by: i * 2 - 1 },
    }))
    yield postJson('/v1/txn', { ops })
  },
}
