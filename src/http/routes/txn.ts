import type { FastifyInstance } from 'fastify'
import { type Check, type Op, runOneShot } from '../../client/one-shot.js'
import { LOCK_WAIT_MS_DEFAULT, MAX_RETRIES_DEFAULT, SCAN_LIMIT_DEFAULT } from '../../limits.js'
import { invalid } from '../../percolator/errors.js'
import type { AppContext } from '../context.js'
import { type Decoded, decoderOf } from '../decode.js'
import { answerOutcome, idempotencyOf } from '../idempotency-key.js'
import { rangeOf } from '../range.js'
import * as schemas from '../schemas.js'
import { snakeCase } from '../wire.js'

/** `POST /v1/txn`: a whole transaction in one round trip. */
export function txnRoutes(app: FastifyInstance, { store, limits }: AppContext): void {
  const decode = decoderOf(schemas.TxnBody, limits)
  app.post('/v1/txn', { schema: { body: schemas.TxnBody } }, async (request, reply) => {
    const { checks = [], ops = [], isolation, maxRetries = MAX_RETRIES_DEFAULT } = decode(request.body)
    checks.forEach(requireCondition)
    const asked = { checks, ops: ops.map(opOf), isolation, maxRetries, lockWaitMs: LOCK_WAIT_MS_DEFAULT }
    const outcome = await runOneShot(store, { ...asked, idempotency: idempotencyOf(request, asked) })
    return answerOutcome(request, reply, outcome, outcome.answer)
  })
}

function requireCondition(check: Check, index: number): void {
  if (check.exists === undefined && check.value === undefined && check.commitTs === undefined)
    throw invalid(`checks[${index}]`, `checks[${index}] needs exists, value or commit_ts`)
}

type WireOp = Decoded<schemas.TxnOp>

const FIELDS: Readonly<Record<Op['op'], readonly (keyof WireOp)[]>> = {
  get: ['op', 'key'],
  put: ['op', 'key', 'value'],
  delete: ['op', 'key'],
  insert: ['op', 'key', 'value'],
  increment: ['op', 'key', 'by'],
  scan: ['op', 'prefix', 'start', 'end', 'limit', 'reverse', 'keysOnly'],
}

/** @throws KvError `invalid_argument` for a field that is missing or does not go with the op. */
function opOf(given: WireOp, index: number): Op {
  for (const name of Object.keys(given) as (keyof WireOp)[]) {
    const field = `ops[${index}].${snakeCase(name)}`
    if (!FIELDS[given.op].includes(name)) throw invalid(field, `${field} does not go with ${given.op}`)
  }
  const need = <K extends 'key' | 'value'>(name: K): Uint8Array => {
    const bytes = given[name]
    if (bytes === undefined) throw invalid(`ops[${index}].${name}`, `ops[${index}].${name} is missing`)
    return bytes
  }
  switch (given.op) {
    case 'get':
    case 'delete':
      return { op: given.op, key: need('key') }
    case 'put':
    case 'insert':
      return { op: given.op, key: need('key'), value: need('value') }
    case 'increment':
      return { op: 'increment', key: need('key'), by: given.by ?? 1 }
    case 'scan': {
      const { start, end } = rangeOf(given, `ops[${index}].prefix`)
      const { limit = SCAN_LIMIT_DEFAULT, reverse = false, keysOnly: keyOnly = false } = given
      return { op: 'scan', start, end, limit, reverse, keyOnly }
    }
  }
}
