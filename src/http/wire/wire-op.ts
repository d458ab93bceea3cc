import { snakeCase } from '../../bytes/field-names.js'
import { invalid } from '../../errors/kv-error.js'
import { SCAN_LIMIT_DEFAULT } from '../../limits.js'
import type { Op } from '../../txn/op.js'
import type { Decoded } from './decode.js'
import { rangeOf } from './range.js'
import type { TxnOp } from './schemas/txn.js'

type WireOp = Decoded<TxnOp>

const FIELDS: Readonly<Record<Op['op'], readonly (keyof WireOp)[]>> = {
  get: ['op', 'key'],
  put: ['op', 'key', 'value'],
  delete: ['op', 'key'],
  insert: ['op', 'key', 'value'],
  increment: ['op', 'key', 'by'],
  scan: ['op', 'prefix', 'start', 'end', 'limit', 'reverse', 'keysOnly'],
}

export function isWrite({ op }: Pick<WireOp, 'op'>): boolean {
  return op !== 'get' && op !== 'scan'
}

/** @throws KvError `invalid_argument` for a field that is missing or does not belong to the op. */
export function opOf(given: WireOp, index: number): Op {
  const known = FIELDS[given.op]
  for (const name in given) {
    if (known.includes(name as keyof WireOp)) continue
    const field = `ops[${index}].${snakeCase(name)}`
    throw invalid(field, `${field} does not go with ${given.op}`)
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
