// A bare fastify server that answers the same bytes from memory: the ceiling of this HTTP stack.
import Fastify from 'fastify'

const app = Fastify()
const value = Buffer.alloc(100, 'v')
const putAnswer = JSON.stringify({ commit_ts: 3676652170915841 })
const txnAnswer = JSON.stringify({ start_ts: 3676652170915840, commit_ts: 3676652170915841, results: [{}, {}] })

app.addContentTypeParser('*', { parseAs: 'buffer' }, (_request, body, done) => done(null, body))
app.get('/get', (_request, reply) =>
  reply.header('etag', '"3676652170915841"').header('content-type', 'application/octet-stream').send(value),
)
app.put('/put', (_request, reply) => reply.header('content-type', 'application/json').send(putAnswer))
app.post('/txn', (_request, reply) => reply.header('content-type', 'application/json').send(txnAnswer))

console.log(await app.listen({ host: '127.0.0.1', port: 0 }))
