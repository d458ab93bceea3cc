import { Readable } from 'node:stream'
import type { FastifyInstance } from 'fastify'
import { invalid, KvError } from '../../errors/kv-error.js'
import { BACKUP_LOCK_WAIT_MS } from '../../limits.js'
import { hangUpSignal, whenOver } from '../connections/answer-end.js'
import { receiveStream } from '../connections/streaming-requests.js'
import { answer } from '../wire/answer.js'
import { lockWaitMs, queryBytes, queryFlag, queryTimestamp, type RawQuery } from '../wire/query.js'
import * as schemas from '../wire/schemas/admin.js'
import type { AppContext } from './context.js'

const BACKUP_TYPE = 'application/octet-stream'

export function backupRoutes(app: FastifyInstance, context: AppContext): void {
  const { database, limits, version, traffic } = context

  const config = { access: 'read_all', query: ['ts', 'at', 'start', 'lock_wait_ms'] } as const
  const backup = { exposeHeadRoute: false, schema: schemas.backup, config } as const
  app.get('/v1/admin/backup', backup, async (request, reply) => {
    const query = request.query as RawQuery
    const waitMs = query['lock_wait_ms'] === undefined ? BACKUP_LOCK_WAIT_MS : lockWaitMs(query)
    const start = queryBytes(query, 'start', limits.keyBytesMax + 1) // A backup may be continued right after the longest key.
    traffic.openStream(reply)
    const signal = hangUpSignal(reply.raw)
    const { ts, release } = await database.hold(queryTimestamp(query), { start }, { lockWaitMs: waitMs, signal })
    whenOver(reply.raw, release)
    const bytes = await database.backup({ ts, start, perkv: version, lockWaitMs: waitMs, signal })
    reply.header('content-type', BACKUP_TYPE).header('snapshot-ts', String(ts))
    reply.header('content-disposition', `attachment; filename="perkv-${ts}.backup"`)
    return reply.send(Readable.from(bytes))
  })

  app.register(async (scope) => {
    scope.addHook('onRequest', (request, _reply, done) => {
      const { origin, 'content-type': type } = request.headers
      request.headers['content-type'] = BACKUP_TYPE
      // curl sends a file without a type. With an Origin header a type is required: a page of another site could send a request
      // without one.
      const isBackup = type === undefined ? origin === undefined : /^application\/octet-stream *(;|$)/i.test(type)
      const detail = `send the backup as ${BACKUP_TYPE} (curl: -X POST -T FILE)`
      done(isBackup ? undefined : new KvError('unsupported_media_type', detail, {}))
    })
    scope.removeAllContentTypeParsers()
    scope.addContentTypeParser(BACKUP_TYPE, (_request, body, done) => done(null, body)) // A stream has no size limit.
    const config = { access: 'admin', bodyIsStream: true, query: ['restart'] } as const
    scope.post('/v1/admin/restore', { schema: schemas.restore, config }, async (request, reply) => {
      const restart = queryFlag(request.query as RawQuery, 'restart') ?? false
      request.raw.askForBody?.()
      const body = receiveStream(request.raw, limits.stalledMsMax)
      try {
        return answer(request, reply, { ...(await database.restore(body, { restart })) })
      } catch (error) {
        request.raw.resume() // The client reads the answer only after its body was taken.
        if (error === request.raw.errored) throw invalid('body', 'the connection broke')
        throw error
      }
    })
  })
}
