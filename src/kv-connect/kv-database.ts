import { createHmac } from 'node:crypto'
import { requireKey, tooLarge } from '../bytes/byte-limits.js'
import { afterPrefix, type KeyRange } from '../bytes/key-range.js'
import { invalid } from '../errors/kv-error.js'
import { KV_KEY_BYTES_MAX, KV_NAME_LENGTH_MAX, type Limits } from '../limits.js'

const NAME = new RegExp(`^[A-Za-z0-9._-]{1,${KV_NAME_LENGTH_MAX}}$`)

/** One database: the keys with a prefix. */
export interface KvDatabase {
  readonly name: string
  /** `kv-connect/{name}/` */
  readonly prefix: Buffer
  /** The keys with the prefix. */
  readonly range: KeyRange
  /** A UUID. Every server of the store has the same one. */
  readonly id: string
}

/** Clients choose the names. */
const CACHED_MAX = 1000

/** The databases of a store, by name. All exist. */
export class KvDatabases {
  readonly #secret: Uint8Array
  readonly #cached = new Map<string, KvDatabase>()

  /** @param secret of the store, of which the ids are made. */
  constructor(secret: Uint8Array) {
    this.#secret = secret
  }

  /** @throws KvError `invalid_argument` for a bad name. */
  of(name: string): KvDatabase {
    const cached = this.#cached.get(name)
    if (cached !== undefined) return cached
    const database = kvDatabase(name, this.#secret)
    if (this.#cached.size >= CACHED_MAX) this.#cached.clear()
    this.#cached.set(name, database)
    return database
  }
}

function kvDatabase(name: string, secret: Uint8Array): KvDatabase {
  if (!NAME.test(name))
    throw invalid(
      'database',
      `the name of a database has 1 to ${KV_NAME_LENGTH_MAX} letters, digits, dots, underscores and hyphens`,
    )
  const prefix = Buffer.from(`kv-connect/${name}/`)
  const hash = createHmac('sha256', secret).update(prefix).digest()
  return { name, prefix, range: { start: prefix, end: afterPrefix(prefix) }, id: uuid(hash) }
}

/** Version 8 of RFC 9562: bits of the program's own choice. */
function uuid(bytes: Buffer): string {
  bytes[6] = 0x80 | ((bytes[6] as number) & 0x0f)
  bytes[8] = 0x80 | ((bytes[8] as number) & 0x3f)
  const hex = bytes.toString('hex')
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20, 32)].join('-')
}

export function withPrefix({ prefix }: KvDatabase, key: Uint8Array): Buffer {
  const stored = Buffer.allocUnsafe(prefix.length + key.length)
  stored.set(prefix)
  stored.set(key, prefix.length)
  return stored
}

/** @throws KvError `payload_too_large` */
export function storedKey(key: Uint8Array, database: KvDatabase, limits: Limits, bytesMax = KV_KEY_BYTES_MAX): Buffer {
  if (key.length > bytesMax) throw tooLarge('key', key.length, bytesMax)
  const stored = withPrefix(database, key)
  requireKey(stored, 'key', limits.keyBytesMax)
  return stored
}
