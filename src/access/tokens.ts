import { createHash, randomBytes, timingSafeEqual } from 'node:crypto'
import { unixMsOfInstant } from '../instant.js'
import { TOKEN_LENGTH_MAX, TOKEN_LENGTH_MIN } from '../limits.js'
import { Grant } from './grant.js'

/** Bearer token of RFC 6750. */
const TOKEN = /^[A-Za-z0-9\-._~+/]+=*$/
const DAY_MS = 24 * 60 * 60 * 1000
const NAME = /^[\x21-\x7e]{1,64}$/

/** Invalid line of a token file. The message has the line's number and none of its content. */
class TokenFileError extends Error {
  override readonly name = 'TokenFileError'
}

interface Entry {
  readonly digest: Buffer
  readonly grant: Grant
  readonly line: string
}

interface Options {
  readonly prefixes: readonly string[]
  readonly name: string | undefined
  readonly expiresMs: number | undefined
}

/**
 * Accepted tokens, stored as digests under a salt of this process.
 *
 * The time of a look-up reveals nothing about a token. The Map may compare text byte by byte, but it compares salted digests: a
 * client that does not know the salt can neither choose a digest nor learn from one which token to try next. The comparison that
 * decides is timingSafeEqual.
 */
export class Tokens {
  readonly #salt = randomBytes(32).toString('hex')
  readonly #entries = new Map<string, Entry>()

  /** @returns undefined for an unknown token, and for one that has expired. */
  grantOf(token: string, nowMs = Date.now()): Grant | undefined {
    const digest = this.#digest(token)
    const entry = this.#entries.get(digest.toString('latin1'))
    if (entry === undefined || !timingSafeEqual(entry.digest, digest)) return undefined
    const { grant } = entry
    return grant.expiresMs !== undefined && grant.expiresMs <= nowMs ? undefined : grant
  }

  /** @returns the tokens that expire in a span of Unix milliseconds, each as its line: `line 3 (app)`. */
  expiring(afterMs: number, untilMs: number): readonly string[] {
    const isIn = ({ grant: { expiresMs } }: Entry): boolean =>
      expiresMs !== undefined && expiresMs > afterMs && expiresMs <= untilMs
    return [...this.#entries.values()].filter(isIn).map(({ line }) => line)
  }

  get size(): number {
    return this.#entries.size
  }

  /** @returns false for a token that was added before. */
  add(token: string, grant: Grant, line: string): boolean {
    const digest = this.#digest(token)
    const id = digest.toString('latin1')
    if (this.#entries.has(id)) return false
    this.#entries.set(id, { digest, grant, line })
    return true
  }

  #digest(token: string): Buffer {
    return createHash('sha256')
      .update(this.#salt + token)
      .digest()
  }
}

/**
 * Parses one token per line: `rw TOKEN` or `ro TOKEN`, then any number of `prefix=PREFIX` (percent-encoded), `name=NAME` and
 * `expires=DATE`. Skips empty lines and lines that begin with `#`.
 * @throws TokenFileError
 */
export function parseTokens(text: string): Tokens {
  const tokens = new Tokens()
  for (const [index, line] of text
    .replace(/^\ufeff/, '')
    .split(/\r?\n/)
    .entries()) {
    const words = line.split(/[ \t]+/).filter((word) => word !== '')
    if (words.length === 0 || words[0]?.startsWith('#')) continue
    const refuse = (what: string) => new TokenFileError(`line ${index + 1}: ${what}`)
    const [access = '', token = '', ...options] = words
    if (access !== 'rw' && access !== 'ro') throw refuse('it must begin with rw or ro')
    if (token.length < TOKEN_LENGTH_MIN || token.length > TOKEN_LENGTH_MAX)
      throw refuse(`a token has ${TOKEN_LENGTH_MIN} to ${TOKEN_LENGTH_MAX} characters`)
    if (!TOKEN.test(token)) throw refuse('a token has letters, digits and - . _ ~ + / only, and = at its end')
    const found = optionsOf(options, refuse)
    const where = `line ${index + 1}${found.name === undefined ? '' : ` (${found.name})`}`
    if (!tokens.add(token, grantOf(access, token, found), where)) throw refuse('this token stands above already')
  }
  if (tokens.size === 0) throw new TokenFileError('it holds no token')
  return tokens
}

function optionsOf(options: readonly string[], refuse: (what: string) => TokenFileError): Options {
  const prefixes: string[] = []
  let name: string | undefined
  let expiresMs: number | undefined
  for (const option of options) {
    const value = option.slice(option.indexOf('=') + 1)
    if (option.startsWith('prefix=')) {
      if (value === '' || /%(?![0-9a-fA-F]{2})/.test(value)) throw refuse('a prefix is empty, or has a bad % escape')
      prefixes.push(value)
    } else if (option.startsWith('name=')) {
      if (name !== undefined || !NAME.test(value)) throw refuse('one name, of 1 to 64 visible ASCII characters')
      name = value
    } else if (option.startsWith('expires=')) {
      if (expiresMs !== undefined) throw refuse('one expires')
      expiresMs = expiryOf(value)
      if (expiresMs === undefined)
        throw refuse('expires is a day such as 2027-01-31, or a time such as 2027-01-31T12:00:00Z')
    } else throw refuse('behind the token there may be prefix=PREFIX, name=NAME and expires=DATE')
  }
  return { prefixes, name, expiresMs }
}

/** A day is the last one, in UTC, on which the token is accepted. */
function expiryOf(text: string): number | undefined {
  if (text.length !== 'YYYY-MM-DD'.length) return unixMsOfInstant(text)
  const beginsMs = unixMsOfInstant(`${text}T00:00:00Z`)
  return beginsMs === undefined ? undefined : beginsMs + DAY_MS
}

function grantOf(access: 'rw' | 'ro', token: string, { prefixes, name, expiresMs }: Options): Grant {
  // The identity includes the rights: a caller who is given fewer rights loses access to transactions begun with more.
  const who = name === undefined ? ['token', token] : ['name', name]
  const identity = createHash('sha256')
    .update(JSON.stringify([...who, access, [...prefixes].sort()]))
    .digest('base64url')
  return new Grant({
    mayWrite: access === 'rw',
    prefixes: prefixes.length === 0 ? undefined : prefixes.map(decodedBytes),
    identity,
    expiresMs,
  })
}

function decodedBytes(encoded: string): Buffer {
  const parts = encoded.split(/(%[0-9a-fA-F]{2})/)
  return Buffer.concat(parts.map((part, i) => (i % 2 === 1 ? Buffer.from(part.slice(1), 'hex') : Buffer.from(part))))
}
