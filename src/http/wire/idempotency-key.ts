import { createHash } from 'node:crypto'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { invalid } from '../../errors/kv-error.js'
import { runSliced } from '../../event-loop/time-slicer.js'
import type { Idempotency, Once } from '../../txn/idempotency.js'
import { answer } from './answer.js'
import { ANSWER_STEP_BYTES, jsonPieces } from './encode-answer.js'
import type { Plain } from './wire.js'

const HEADER = 'idempotency-key'

/**
 * @param asked the whole content of the request: a different request under the same key is refused.
 * @throws KvError `invalid_argument` unless the key is 1 to 255 printable bytes.
 */
export function idempotencyOf(request: FastifyRequest, asked: Plain): Idempotency | undefined | Promise<Idempotency> {
  const header = idempotencyHeader(request)
  if (header === undefined) return undefined
  const { identity: caller, mayWrite } = request.grant
  const idempotency = { key: outcomeKey(header, caller), caller, mayWrite }
  const fingerprint = runSliced(fingerprintOf(request.method, asked))
  return fingerprint instanceof Promise
    ? fingerprint.then((hash) => ({ ...idempotency, fingerprint: hash }))
    : { ...idempotency, fingerprint }
}

export function idempotencyHeader({ headers, raw }: FastifyRequest): string | undefined {
  const header = headers[HEADER]
  if (header === undefined) return undefined
  const given = raw.rawHeaders.filter((name, i) => i % 2 === 0 && name.toLowerCase() === HEADER)
  if (given.length > 1) throw invalid(HEADER, 'Idempotency-Key is given more than once')
  if (typeof header === 'string' && /^[\x20-\x7e]{1,255}$/.test(header)) return header
  throw invalid(HEADER, 'Idempotency-Key must be 1 to 255 printable bytes')
}

function* fingerprintOf(method: string, asked: Plain): Generator<void, Buffer, void> {
  const hash = createHash('sha256').update(`${method} `)
  let bytes = 0
  for (const piece of jsonPieces(asked)) {
    hash.update(piece)
    bytes += piece.length
    if (bytes < ANSWER_STEP_BYTES) continue
    bytes = 0
    yield
  }
  return hash.digest()
}

export function answerOutcome(
  request: FastifyRequest,
  reply: FastifyReply,
  outcome: Once<object>,
  body: Plain,
): FastifyReply | Promise<FastifyReply> {
  if (outcome.isReplayed) reply.header('idempotency-replayed', 'true')
  return answer(request, reply, body)
}

/** Callers with different identities do not share keys: one would get the outcome of another's request. */
function outcomeKey(header: string, identity: string | undefined): Buffer {
  if (identity === undefined) return Buffer.from(header, 'latin1')
  return createHash('sha256').update(`${identity} ${header}`).digest()
}
