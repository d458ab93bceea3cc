import { Readable } from 'node:stream'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { type BackupBlock, decodeBackup } from '../../backup/backup-decoder.js'
import { BackupError, type BackupPair, BLOCK_BYTES } from '../../backup/backup-format.js'
import { backupId, backupStream } from '../../backup/backup-stream.js'
import { RECORD_HEAD_BYTES } from '../../backup/pair-records.js'
import { invalid, KvError } from '../../errors/kv-error.js'
import { printKey } from '../../errors/print-key.js'
import { primed } from '../../event-loop/primed.js'
import { BACKUP_LOCK_WAIT_MS, type Limits, RESTORE_AHEAD_MS_MAX, SCAN_PAGE, STREAM_PAGE_BYTES } from '../../limits.js'
import { timestampFromMs } from '../../timestamp.js'
import { receiveStream } from '../admission/receiving.js'
import { hangUpSignal, whenOver } from '../connections/answer-end.js'
import { answer } from '../wire/answer.js'
import { lockWaitMs, queryBytes, queryFlag, queryTimestamp, type RawQuery } from '../wire/query.js'
import type { AppContext } from './context.js'

const BACKUP_TYPE = 'application/octet-stream'

/** `GET /v1/admin/backup`, `POST /v1/admin/restore`: the whole store as a stream. */
export function backupRoutes(app: FastifyInstance, context: AppContext): void {
  const { store, coordinator, limits, version, pins, traffic } = context

  const backupConfig = { access: 'read_all', query: ['ts', 'at', 'start', 'lock_wait_ms'] } as const
  app.get('/v1/admin/backup', { exposeHeadRoute: false, config: backupConfig }, async (request, reply) => {
    const query = request.query as RawQuery
    const waitMs = query['lock_wait_ms'] === undefined ? BACKUP_LOCK_WAIT_MS : lockWaitMs(query)
    const start = queryBytes(query, 'start', limits.keyBytesMax + 1) // The first one after the longest key, too.
    const { ts, release } = await pins.holdNow(queryTimestamp(query))
    whenOver(reply.raw, release)
    traffic.openStream(reply)
    const snapshot = coordinator.snapshot(ts, { lockWaitMs: waitMs, signal: hangUpSignal(reply.raw) })
    const header = { id: backupId(store.cursorSecret, ts), ts, perkv: version, start }
    const bytes = backupStream(header, (from) =>
      snapshot.scan({ start: from, limit: SCAN_PAGE, bytesMax: STREAM_PAGE_BYTES }),
    )
    const stream = await primed(bytes)
    reply.header('content-type', BACKUP_TYPE)
    reply.header('content-disposition', `attachment; filename="perkv-${ts}.backup"`)
    return reply.send(Readable.from(stream))
  })

  app.register(async (scope) => {
    scope.addHook('onRequest', (request, _reply, done) => {
      const { origin, 'content-type': type } = request.headers
      request.headers['content-type'] = BACKUP_TYPE
      // Without a type, as curl sends a file; but a page of another site could do so too, unasked.
      const isBackup = type === undefined ? origin === undefined : /^application\/octet-stream *(;|$)/i.test(type)
      const detail = `send the backup as ${BACKUP_TYPE} (curl: -X POST -T FILE)`
      done(isBackup ? undefined : new KvError('unsupported_media_type', detail, {}))
    })
    scope.removeAllContentTypeParsers()
    scope.addContentTypeParser(BACKUP_TYPE, (_request, body, done) => done(null, body)) // A stream has no limit.
    const config = { access: 'admin', bodyIsStream: true, query: ['restart'] } as const
    scope.post('/v1/admin/restore', { config }, async (request, reply) => {
      const isAnew = queryFlag(request.query as RawQuery, 'restart') ?? false
      receiveStream(request.raw, limits.stalledMsMax)
      try {
        return answer(request, reply, await restore(request, context, isAnew))
      } catch (error) {
        request.raw.resume() // What nobody reads any more would keep the answer from the client.
        if (error === request.raw.errored) throw invalid('body', 'the connection broke')
        throw error instanceof BackupError ? refused(error, limits) : error
      }
    })
  })
}

async function restore(request: FastifyRequest, { store, limits }: AppContext, isAnew: boolean) {
  const body = request.raw.iterator({ destroyOnReturn: false }) // The answer goes out on its connection.
  const longest = RECORD_HEAD_BYTES + limits.keyBytesMax + limits.valueBytesMax
  const blocks = decodeBackup(body, { blockBytesMax: BLOCK_BYTES + longest })
  try {
    const first = await blocks.next()
    if (first.done || first.value.type !== 'header') throw new Error('a backup begins with its header')
    const { id, ts, start } = first.value.header
    if (start !== undefined) throw invalid('body', 'this is a part that continues another backup, not one by itself')
    if (ts > store.clock() + timestampFromMs(RESTORE_AHEAD_MS_MAX))
      throw invalid('body', `the backup is of ts ${ts}, over a day ahead of this machine's clock`)
    const { pairs, bytes } = await store.restore({ id, ts }, pairsOf(blocks, limits), isAnew)
    return { id, ts, pairs, bytes }
  } finally {
    await blocks.return()
  }
}

async function* pairsOf(blocks: AsyncIterable<BackupBlock>, limits: Limits): AsyncGenerator<readonly BackupPair[]> {
  for await (const block of blocks) {
    if (block.type !== 'data') continue
    for (const pair of block.pairs) requireWithinLimits(pair, limits)
    yield block.pairs
  }
}

function requireWithinLimits({ key, value }: BackupPair, { keyBytesMax, valueBytesMax }: Limits): void {
  const isKeyLong = key.length > keyBytesMax
  if (!isKeyLong && value.length <= valueBytesMax) return
  const limit = isKeyLong ? keyBytesMax : valueBytesMax
  const what = isKeyLong ? 'a key' : `the value of ${printKey(key)}`
  const detail = `${what} has ${(isKeyLong ? key : value).length} bytes, over this server's limit of ${limit}`
  throw new KvError('payload_too_large', detail, { field: 'body', limit })
}

function refused({ reason, message }: BackupError, { valueBytesMax: limit }: Limits): KvError {
  return reason === 'too_large'
    ? new KvError('payload_too_large', message, { field: 'body', limit })
    : invalid('body', message)
}
