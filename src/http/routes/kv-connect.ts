import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { checksFailed, committed } from '../../kv-connect/answers.js'
import { atomicWriteOf } from '../../kv-connect/atomic-write.js'
import { type KvDatabase, KvDatabases, storedKey } from '../../kv-connect/kv-database.js'
import { watchFrom } from '../../kv-connect/messages.js'
import { metadataOf, requireMeant, versionFor } from '../../kv-connect/metadata.js'
import { readSnapshot, snapshotReadOf } from '../../kv-connect/snapshot-read.js'
import { KV_BODY_BYTES_MAX, LOCK_WAIT_MS_DEFAULT, MAX_RETRIES_DEFAULT } from '../../limits.js'
import { bearerToken } from '../admission/access.js'
import { hangUp } from '../connections/answer-end.js'
import { KV_DATABASE_ROUTE } from '../wire/key-url.js'
import { encodeEntries } from '../wire/kv-entries.js'
import { CONTENT_TYPE } from '../wire/media-type.js'
import { PLAIN_TEXT, plainRefusal } from '../wire/plain-refusal.js'
import type { AppContext } from './context.js'
import { KvWatch } from './kv-watch.js'

/** What a client without a token gets back, where none is needed: the protocol has no answer without one. */
const NO_TOKEN = 'none'

/** The remote protocol of Deno KV. A token must reach the whole database. */
export function kvConnectRoutes(app: FastifyInstance, context: AppContext): void {
  app.register(async (scope) => {
    plainRefusals(scope, context)
    bytesAsBodies(scope, context)
    dataPath(scope, context, new KvDatabases(context.database.store.cursorSecret))
  })
}

function dataPath(scope: FastifyInstance, context: AppContext, databases: KvDatabases): void {
  const { database, limits } = context

  function databaseOf(request: FastifyRequest): KvDatabase {
    const kv = databases.of((request.params as { readonly database: string }).database)
    request.grant.requireRange(kv.range, 'database')
    return kv
  }

  /** @throws KvError `invalid_argument` for a call that was meant for another database. */
  function meantOf(request: FastifyRequest): KvDatabase {
    const kv = databaseOf(request)
    const { headers } = request
    requireMeant(kv, {
      version: text(headers['x-denokv-version']),
      databaseId: text(headers['x-denokv-database-id']),
      domainId: text(headers['x-transaction-domain-id']),
    })
    return kv
  }

  const exchanging = { access: 'read', work: 'reading', isInternal: true } as const
  scope.post(KV_DATABASE_ROUTE, { config: exchanging }, (request, reply) => {
    const kv = databaseOf(request)
    const version = versionFor(bodyOf(request))
    const token = bearerToken(request.headers.authorization) ?? NO_TOKEN
    const origin = `${request.protocol}://${request.host}`
    const metadata = metadataOf(kv, { version, origin, token, nowMs: Date.now() })
    // This connection is node:http's now. The client's next one, for all its calls, is the fast lane's.
    if (request.raw.httpVersionMajor === 1) reply.header('connection', 'close')
    // As bytes: fastify would add a charset to text, and clients compare the content type.
    return reply.header('content-type', 'application/json').send(Buffer.from(JSON.stringify(metadata)))
  })

  const reading = { access: 'read', work: 'reading', onlyReads: true, isInternal: true } as const
  scope.post(`${KV_DATABASE_ROUTE}/snapshot_read`, { config: reading }, async (request, reply) => {
    const kv = meantOf(request)
    const asked = snapshotReadOf(bodyOf(request), kv, limits)
    const entries = await readSnapshot(database, asked, () => waitingOf(request, reply))
    return reply.header('content-type', CONTENT_TYPE.protobuf).send(encodeEntries(entries, kv))
  })

  const writing = { access: 'write', isInternal: true } as const
  scope.post(`${KV_DATABASE_ROUTE}/atomic_write`, { config: writing }, async (request, reply) => {
    const asked = atomicWriteOf(bodyOf(request), meantOf(request), limits)
    const waiting = waitingOf(request, reply)
    reply.header('content-type', CONTENT_TYPE.protobuf)
    try {
      const { answer } = await database.transact({ ...asked, ...waiting, maxRetries: MAX_RETRIES_DEFAULT })
      // A write of nothing gets a versionstamp too, above those of all writes before it.
      return reply.send(committed(answer.commitTs ?? (await database.store.tso(1))))
    } catch (error) {
      const failed = checksFailed(error)
      if (failed === undefined) throw error
      return reply.send(failed)
    }
  })

  const watching = { access: 'read', work: 'reading', isInternal: true } as const
  scope.post(`${KV_DATABASE_ROUTE}/watch`, { config: watching }, (request, reply) => {
    const kv = meantOf(request)
    const keys = watchFrom(bodyOf(request)).map((key) => storedKey(key, kv, limits))
    new KvWatch(context, kv, keys).open(request, reply)
    return reply
  })
}

function waitingOf({ grant }: FastifyRequest, { raw }: FastifyReply) {
  return { lockWaitMs: LOCK_WAIT_MS_DEFAULT, caller: grant.identity, signal: hangUp(raw) }
}

/** Clients send no content type with protobuf, and JSON is parsed where it is expected. */
function bytesAsBodies(scope: FastifyInstance, { traffic, limits }: AppContext): void {
  const bytesMax = Math.min(KV_BODY_BYTES_MAX, limits.bodyBytesMax)
  scope.addHook('onRequest', (request, _reply, done) => {
    request.headers['content-type'] = 'application/octet-stream'
    done()
  })
  scope.removeAllContentTypeParsers()
  scope.addContentTypeParser('*', (request, _payload, done) => traffic.readBody(request, bytesMax, done))
}

function plainRefusals(scope: FastifyInstance, { report }: AppContext): void {
  scope.setErrorHandler((error, request, reply) => {
    const problem = report(error, request.id)
    request.raw.problemCode = problem.code
    const { status, text } = plainRefusal(problem, request.grant)
    return reply.status(status).headers(problem.headers).header('content-type', PLAIN_TEXT).send(text)
  })
}

function bodyOf({ body }: FastifyRequest): Uint8Array {
  return body instanceof Uint8Array ? body : NOTHING
}

const NOTHING = new Uint8Array()

function text(header: string | readonly string[] | undefined): string | undefined {
  return typeof header === 'string' ? header : undefined
}
