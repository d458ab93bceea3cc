// What anyone would write in ten lines to put LevelDB behind HTTP: no versions, no transactions.
import { ClassicLevel } from 'classic-level'
import Fastify from 'fastify'

const db = new ClassicLevel(process.argv[2], { valueEncoding: 'buffer' })
const app = Fastify()

app.addContentTypeParser('application/octet-stream', { parseAs: 'buffer' }, (_request, body, done) => done(null, body))
app.get('/v1/kv/:key', async (request, reply) => {
  const value = await db.get(request.params.key)
  return value ?? reply.status(404).send()
})
app.put('/v1/kv/:key', async (request) => {
  await db.put(request.params.key, request.body, { sync: true })
  return {}
})

console.log(await app.listen({ host: '127.0.0.1', port: 0 }))
