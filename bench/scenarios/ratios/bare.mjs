// A bare fastify server that answers from memory, with PerKV's routes and bytes: the ceiling of this HTTP stack.
import Fastify from 'fastify'
import { valueAt } from '../../harness/payload.mjs'

const app = Fastify()
const value = Buffer.from(valueAt(0))
const ts = 3676652170915840
const answers = {
  put: JSON.stringify({ commit_ts: ts + 1 }),
  txn: JSON.stringify({ start_ts: ts, commit_ts: ts + 1, results: [{}, {}] }),
  prewrite: JSON.stringify({ one_pc_commit_ts: ts + 1 }),
}

app.addContentTypeParser('*', { parseAs: 'buffer' }, (_request, body, done) => done(null, body))

async function sendValue(_request, reply) {
  return reply
    .header('etag', `"${ts + 1}"`)
    .header('content-type', 'application/octet-stream')
    .send(value)
}
const sender = (text) => async (_request, reply) =>
  reply.header('content-type', 'application/json; charset=utf-8').send(text)

app.get('/v1/kv/:key', sendValue)
app.put('/v1/kv/:key', sender(answers.put))
app.post('/v1/txn', sender(answers.txn))
app.post('/v1/percolator/prewrite', sender(answers.prewrite))

console.log(await app.listen({ host: '127.0.0.1', port: 0 }))
