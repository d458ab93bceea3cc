// A fastify server that writes one LevelDB record per PUT, and answers after the fsync that the PUT shares with the others
// that came meanwhile: no versions, checksums, conflicts or limits. The ceiling of durable writes with this HTTP stack.
import { ClassicLevel } from 'classic-level'
import Fastify from 'fastify'

const db = new ClassicLevel(process.argv[2], { valueEncoding: 'buffer' })
const app = Fastify()
const answer = JSON.stringify({ commit_ts: 3676652170915841 })

/** Requests whose records are in no batch yet. */
let waiting = []
let isWriting = false

function write(request, reply) {
  waiting.push({ request, reply })
  if (isWriting) return
  isWriting = true
  setImmediate(writeGroup) // After this turn of the event loop, so that everything that it brought shares an fsync.
}

function writeGroup() {
  const group = waiting
  waiting = []
  const batch = db.batch()
  for (const { request } of group) batch.put(request.params.key, request.body)
  batch.write({ sync: true }).then(() => {
    for (const { reply } of group) reply.header('content-type', 'application/json; charset=utf-8').send(answer)
    isWriting = waiting.length > 0
    if (isWriting) setImmediate(writeGroup)
  })
}

app.addContentTypeParser('application/octet-stream', { parseAs: 'buffer' }, (_request, body, done) => done(null, body))
app.put('/v1/kv/:key', write)

await db.open()
console.log(await app.listen({ host: '127.0.0.1', port: 0 }))
