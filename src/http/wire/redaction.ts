import type { Grant } from '../../access/grant.js'
import type { Plain } from './wire.js'

const NO_KEY = new Uint8Array()

/** Names of the fields that hold keys, in answers and problems. */
const KEY_FIELDS: ReadonlySet<string> = new Set(['key', 'primary', 'lockKey', 'secondaries'])

export function isKeyField(name: string): boolean {
  return KEY_FIELDS.has(name)
}

/**
 * Replaces each key that the caller's token does not cover by an empty key, which is never a real one. Locks of other
 * transactions may name such keys. No entry is left out: a client that knew only some keys of a transaction would end it
 * wrongly.
 */
export function redactKeys(data: Plain, grant: Grant, isKey = false): Plain {
  if (typeof data !== 'object' || data === null) return data
  if (data instanceof Uint8Array) return isKey && !grant.mayAccess(data) ? NO_KEY : data
  if (Array.isArray(data)) return data.map((item: Plain) => redactKeys(item, grant, isKey))
  const shown: Record<string, Plain> = {}
  for (const [name, field] of Object.entries(data) as [string, Plain][])
    shown[name] = redactKeys(field, grant, isKeyField(name))
  return shown
}
