import { createHash, randomBytes, timingSafeEqual } from 'node:crypto'
import { TOKEN_LENGTH_MAX, TOKEN_LENGTH_MIN } from '../limits.js'
import { Grant } from './grant.js'

/** Bearer token of RFC 6750. */
const TOKEN = /^[A-Za-z0-9\-._~+/]+=*$/
const NAME = /^[\x21-\x7e]{1,64}$/

/** Invalid line of a token file. The message has the line's number and none of its content. */
class TokenFileError extends Error {
  override readonly name = 'TokenFileError'
}

interface Entry {
  readonly digest: Buffer
  readonly grant: Grant
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

  /** @returns undefined for an unknown token. */
  grantOf(token: string): Grant | undefined {
    const digest = this.#digest(token)
    const entry = this.#entries.get(digest.toString('latin1'))
    return entry !== undefined && timingSafeEqual(entry.digest, digest) ? entry.grant : undefined
  }

  get size(): number {
    return this.#entries.size
  }

  /** @returns false for a token that was added before. */
  add(token: string, grant: Grant): boolean {
    const digest = this.#digest(token)
    const id = digest.toString('latin1')
    if (this.#entries.has(id)) return false
    this.#entries.set(id, { digest, grant })
    return true
  }

  #digest(token: string): Buffer {
    return createHash('sha256')
      .update(this.#salt + token)
      .digest()
  }
}

/**
 * Parses one token per line: `rw TOKEN` or `ro TOKEN`, then any number of `prefix=PREFIX` (percent-encoded), and `name=NAME`.
 * Skips empty lines and lines that begin with `#`.
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
    const { prefixes, name } = optionsOf(options, refuse)
    if (!tokens.add(token, grantOf(access, token, prefixes, name))) throw refuse('this token stands above already')
  }
  if (tokens.size === 0) throw new TokenFileError('it holds no token')
  return tokens
}

function optionsOf(
  options: readonly string[],
  refuse: (what: string) => TokenFileError,
): { prefixes: readonly string[]; name: string | undefined } {
  const prefixes: string[] = []
  let name: string | undefined
  for (const option of options) {
    const value = option.slice(option.indexOf('=') + 1)
    if (option.startsWith('prefix=')) {
      if (value === '' || /%(?![0-9a-fA-F]{2})/.test(value)) throw refuse('a prefix is empty, or has a bad % escape')
      prefixes.push(value)
    } else if (option.startsWith('name=')) {
      if (name !== undefined || !NAME.test(value)) throw refuse('one name, of 1 to 64 visible ASCII characters')
      name = value
    } else throw refuse('behind the token there may be prefix=PREFIX and name=NAME')
  }
  return { prefixes, name }
}

function grantOf(access: 'rw' | 'ro', token: string, prefixes: readonly string[], name: string | undefined): Grant {
  // The identity includes the rights: a caller who is given fewer rights loses access to transactions begun with more.
  const who = name === undefined ? ['token', token] : ['name', name]
  const identity = createHash('sha256')
    .update(JSON.stringify([...who, access, [...prefixes].sort()]))
    .digest('base64url')
  return new Grant({
    mayWrite: access === 'rw',
    prefixes: prefixes.length === 0 ? undefined : prefixes.map(decodedBytes),
    identity,
  })
}

function decodedBytes(encoded: string): Buffer {
  const parts = encoded.split(/(%[0-9a-fA-F]{2})/)
  return Buffer.concat(parts.map((part, i) => (i % 2 === 1 ? Buffer.from(part.slice(1), 'hex') : Buffer.from(part))))
}
