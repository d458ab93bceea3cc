import { requireKey } from '../../bytes/byte-limits.js'
import { snakeCase } from '../../bytes/field-names.js'
import { invalid, KvError } from '../../errors/kv-error.js'
import { DELETE_RANGE_LIMIT_DEFAULT, type Limits, SCAN_LIMIT_DEFAULT } from '../../limits.js'
import { type Expiry, NEVER } from '../../percolator/expiry.js'
import { STAMP_LENGTHS, type Stamp } from '../../percolator/stamped-key.js'
import type { Op } from '../../txn/op.js'
import type { Decoded } from './decode.js'
import { expiryOf } from './expiry.js'
import { rangeOf } from './range.js'
import type { TxnOp } from './schemas/txn.js'

type WireOp = Decoded<TxnOp>

const COUNTER_FIELDS: readonly (keyof WireOp)[] = ['op', 'key', 'by', 'ttlMs', 'expireTs']
const FIELDS: Readonly<Record<Exclude<Op['op'], 'update'>, readonly (keyof WireOp)[]>> = {
  get: ['op', 'key'],
  put: ['op', 'key', 'value', 'ttlMs', 'expireTs', 'lease', 'versionstamp'],
  delete: ['op', 'key'],
  insert: ['op', 'key', 'value', 'ttlMs', 'expireTs', 'lease'],
  increment: COUNTER_FIELDS,
  min: COUNTER_FIELDS,
  max: COUNTER_FIELDS,
  touch: ['op', 'key', 'ttlMs', 'expireTs', 'persist'],
  scan: ['op', 'prefix', 'start', 'end', 'limit', 'reverse', 'keysOnly'],
  delete_range: ['op', 'prefix', 'start', 'end', 'limit'],
}

export function isWrite({ op }: Pick<WireOp, 'op'>): boolean {
  return op !== 'get' && op !== 'scan'
}

/** @throws KvError `payload_too_large` when the ops could write too many keys, or the commit_ts makes a key too long. */
export function requireKeysWithin(
  ops: readonly Op[],
  { requestKeysMax: limit, keyBytesMax }: Pick<Limits, 'requestKeysMax' | 'keyBytesMax'>,
): void {
  for (const [index, op] of ops.entries())
    if (op.op === 'put' && op.stamp !== undefined)
      requireKey(op.key, `ops[${index}].key`, keyBytesMax - STAMP_LENGTHS[op.stamp])
  const keys = ops.reduce((sum, op) => sum + (op.op === 'delete_range' ? op.limit : 1), 0)
  if (keys <= limit) return
  const detail = `the ops could delete more than ${limit} keys: give a lower limit to delete_range`
  throw new KvError('payload_too_large', detail, { field: 'ops', limit })
}

export function opOf(given: WireOp, index: number): Op {
  const known = FIELDS[given.op]
  for (const name in given) {
    if (known.includes(name as keyof WireOp)) continue
    const field = `ops[${index}].${snakeCase(name)}`
    throw invalid(field, `${field} does not go with ${given.op}`)
  }
  const missing = (name: string): never => {
    throw invalid(`ops[${index}].${name}`, `ops[${index}].${name} is missing`)
  }
  const need = (name: 'key' | 'value'): Uint8Array => given[name] ?? missing(name)
  switch (given.op) {
    case 'get':
    case 'delete':
      return { op: given.op, key: need('key') }
    case 'put':
    case 'insert':
      return {
        op: given.op,
        key: need('key'),
        value: need('value'),
        expiry: expiryOf(given, `ops[${index}].`),
        lease: given.lease,
        ...(given.versionstamp ? { stamp: stampOf(given, index) } : {}),
      }
    case 'increment':
    case 'min':
    case 'max': {
      const by = given.by ?? (given.op === 'increment' ? 1 : missing('by'))
      return { op: given.op, key: need('key'), by, expiry: expiryOf(given, `ops[${index}].`) }
    }
    case 'touch':
      return { op: 'touch', key: need('key'), expiry: expiryOfTouch(given, index) }
    case 'scan': {
      const { start, end } = rangeOf(given, `ops[${index}].prefix`)
      const { limit = SCAN_LIMIT_DEFAULT, reverse = false, keysOnly: keyOnly = false } = given
      return { op: 'scan', start, end, limit, reverse, keyOnly }
    }
    case 'delete_range': {
      const { start, end } = rangeOf(given, `ops[${index}].prefix`)
      const field = `ops[${index}].prefix`
      if (start === undefined && end === undefined) throw invalid(field, 'delete_range needs prefix, start or end')
      return { op: 'delete_range', start, end, limit: given.limit ?? DELETE_RANGE_LIMIT_DEFAULT }
    }
  }
}

function stampOf({ lease }: WireOp, index: number): Stamp {
  if (lease === undefined) return 'bytes'
  throw invalid(`ops[${index}].versionstamp`, `ops[${index}].versionstamp does not go with lease`)
}

/** @throws KvError `invalid_argument` unless exactly one of the three fields is given. */
function expiryOfTouch(given: WireOp, index: number): Expiry {
  const { persist } = given
  const expiry = expiryOf(given, `ops[${index}].`)
  const field = `ops[${index}].persist`
  if (persist === false) throw invalid(field, `${field} must be true`)
  if (persist && expiry !== undefined) throw invalid(field, `${field} does not go with ttl_ms or expire_ts`)
  if (persist) return NEVER
  if (expiry === undefined) throw invalid(`ops[${index}].ttl_ms`, 'touch needs ttl_ms, expire_ts or persist')
  return expiry
}
