import { KvError } from '../errors/kv-error.js'

export function tooMany(field: string, limit: number): KvError<'payload_too_large'> {
  return new KvError('payload_too_large', `${field} has over ${limit} entries`, { field, limit })
}
