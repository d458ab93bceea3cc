// Transactions of two fresh keys that the client coordinates, in the three ways that Percolator's protocol has here.
import { fresh } from '../../harness/payload.mjs'
import { postJson } from '../../harness/requests.mjs'

const call = (name, body) => postJson(`/v1/percolator/${name}`, body)
const mutationOf = ({ key, value }) => ({ op: 'put', key, value })

function prewrite(startTs, pairs, options) {
  const mutations = pairs.map(mutationOf)
  return call('prewrite', { start_ts: startTs, primary: pairs[0].key, mutations, ...options })
}

function* tso() {
  return JSON.parse(yield call('tso', {})).ts
}

function commit(startTs, commitTs, pairs) {
  return call('commit', { keys: pairs.map(({ key }) => key), start_ts: startTs, commit_ts: commitTs })
}

export function* onePc() {
  const pairs = [fresh(), fresh()]
  const answer = JSON.parse(yield prewrite(yield* tso(), pairs, { try_one_pc: true }))
  if (!(answer.one_pc_commit_ts > 0)) throw new Error('a transaction fell back to two phases')
}

export function* asyncCommit() {
  const pairs = [fresh(), fresh()]
  const startTs = yield* tso()
  const options = { use_async_commit: true, secondaries: [pairs[1].key] }
  const answer = JSON.parse(yield prewrite(startTs, pairs, options))
  if (!(answer.min_commit_ts > 0)) throw new Error('a transaction fell back from async commit')
  yield commit(startTs, answer.min_commit_ts, pairs)
}

export function* twoPc() {
  const pairs = [fresh(), fresh()]
  const startTs = yield* tso()
  yield prewrite(startTs, pairs)
  yield commit(startTs, yield* tso(), pairs)
}

/** One request like those above, for a server that only answers. */
export const onePrewrite = () => prewrite(3676652170915840, [fresh(), fresh()], { try_one_pc: true })
