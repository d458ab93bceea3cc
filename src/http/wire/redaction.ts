import type { Grant } from '../../access/grant.js'
import type { Plain } from './wire.js'

const NO_KEY = new Uint8Array()

/** Fields that hold keys, as answers and problems name them. */
const KEY_FIELDS: ReadonlySet<string> = new Set(['key', 'primary', 'lockKey', 'secondaries'])

export function isKeyField(name: string): boolean {
  return KEY_FIELDS.has(name)
}

/**
 * What a caller may see who reaches only some keys: other transactions' locks name keys that may lie elsewhere. In their
 * place stand empty ones, which no key is. None is left out: whoever asks about the rest of a transaction's keys alone
 * would come to a wrong end of it.
 */
export function redactKeys(data: Plain, grant: Grant, isKey = false): Plain {
  if (typeof data !== 'object' || data === null) return data
  if (data instanceof Uint8Array) return isKey && !grant.reaches(data) ? NO_KEY : data
  if (Array.isArray(data)) return data.map((item: Plain) => redactKeys(item, grant, isKey))
  const shown: Record<string, Plain> = {}
  for (const [name, field] of Object.entries(data) as [string, Plain][])
    shown[name] = redactKeys(field, grant, isKeyField(name))
  return shown
}
