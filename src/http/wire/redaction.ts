import type { Grant } from '../../access/grant.js'
import type { Plain } from './wire.js'

const NO_KEY = new Uint8Array()

/** Fields that hold keys, as answers and problems name them. */
const KEY_FIELDS: ReadonlySet<string> = new Set(['key', 'primary', 'lockKey', 'secondaries'])

export function isKeyField(name: string): boolean {
  return KEY_FIELDS.has(name)
}

/**
 * Replaces keys that the caller's token does not reach by empty ones, which no key is: locks of other transactions may name
 * such keys. None is left out, because a client that knew only some keys of a transaction would end it wrongly.
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
