import type { KeyRange } from '../bytes/key-range.js'
import { afterPrefix } from '../bytes/key-range.js'
import { asBuffer } from '../bytes/key-text.js'
import { KvError } from '../errors/kv-error.js'
import { nameInError } from '../errors/nearest-name.js'
import { printKey } from '../errors/print-key.js'
import type { MayAccess } from '../percolator/access.js'

/** Most prefixes of a token that a refusal names. */
const PREFIXES_SHOWN = 8

export interface Rights {
  readonly mayWrite: boolean
  /** The caller may use keys that begin with one of these; undefined: every key. */
  readonly prefixes?: readonly Uint8Array[] | undefined
  /**
   * Owner of open transactions and of outcomes under an Idempotency-Key. All tokens of one name with the same rights share it.
   * undefined when callers are not distinguished.
   */
  readonly identity?: string | undefined
  /** Unix milliseconds from which on the token is not accepted; undefined: never. */
  readonly expiresMs?: number | undefined
}

/** Rights of a caller. Each check throws KvError `forbidden`, which reveals nothing about stored data. */
export class Grant {
  /** The grant of every caller of a server without tokens. */
  static readonly EVERYTHING = new Grant({ mayWrite: true })

  readonly identity: string | undefined
  readonly isScoped: boolean
  /** Passed to the calls of a store; undefined: every key. */
  readonly accessCheck: MayAccess | undefined
  readonly mayWrite: boolean
  readonly expiresMs: number | undefined
  readonly #prefixes: readonly Uint8Array[] | undefined

  constructor({ mayWrite, prefixes, identity, expiresMs }: Rights) {
    this.mayWrite = mayWrite
    this.#prefixes = prefixes
    this.isScoped = prefixes !== undefined
    this.accessCheck = prefixes && ((key) => this.mayAccess(key))
    this.identity = identity
    this.expiresMs = expiresMs
  }

  /** undefined: every key. */
  get prefixes(): readonly Uint8Array[] | undefined {
    return this.#prefixes
  }

  covers({ mayWrite, prefixes }: Grant): boolean {
    if (mayWrite && !this.mayWrite) return false
    if (prefixes === undefined) return !this.isScoped
    return prefixes.every((prefix) => this.mayAccessRange({ start: prefix, end: afterPrefix(prefix) }))
  }

  requireWrite(): void {
    if (!this.mayWrite) throw forbidden('this token is read-only')
  }

  /** For calls that act on keys which the request does not name. */
  requireEveryKey(): void {
    if (this.isScoped)
      throw forbidden(`this needs a token that is not bound to key prefixes: this one reaches ${this.#accessText()}`)
  }

  requireKey(key: Uint8Array, field: string): void {
    if (this.#prefixes === undefined || this.mayAccess(key)) return
    throw forbidden(`${field} is outside of what this token reaches: ${this.#accessText()}`, field)
  }

  /** Refuses a range that the grant covers only in part: a narrowed answer would be taken for the whole range. */
  requireRange({ start, end }: KeyRange, field: string): void {
    if (this.mayAccessRange({ start, end })) return
    throw forbidden(`the range is not within what this token reaches: ${this.#accessText()}`, field)
  }

  /** Whether the grant covers the whole range. */
  mayAccessRange({ start, end }: KeyRange): boolean {
    if (this.#prefixes === undefined) return true
    return this.#prefixes.some((prefix) => {
      const after = afterPrefix(prefix)
      return (
        start !== undefined &&
        Buffer.compare(start, prefix) >= 0 &&
        (after === undefined || (end !== undefined && Buffer.compare(end, after) <= 0))
      )
    })
  }

  mayAccess(key: Uint8Array): boolean {
    return this.#prefixes?.some((prefix) => asBuffer(key).subarray(0, prefix.length).equals(prefix)) ?? true
  }

  /** Describes the caller's own token, and no other. */
  #accessText(): string {
    const prefixes = this.#prefixes ?? []
    const shown = prefixes.slice(0, PREFIXES_SHOWN).map((prefix) => nameInError(printKey(prefix)))
    const more = prefixes.length - shown.length
    return `keys that begin with ${shown.join(' or ')}${more > 0 ? ` or one of ${more} more prefixes` : ''}`
  }
}

function forbidden(detail: string, field?: string): KvError<'forbidden'> {
  return new KvError('forbidden', detail, field ? { field } : {})
}
