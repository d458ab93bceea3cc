import { invalid } from '../errors/kv-error.js'

const URL_LENGTH_MAX = 2048
/** Slashes, backslashes and steps upwards that a target might find after the path was compared. */
const HIDDEN_STEPS = /%2f|%5c|%25|\/\.{1,2};/i

/**
 * The URLs that the operator allows: those with the origin of one of some URLs, below its path. Names are compared as they are
 * written; to which addresses they resolve is up to the operator.
 */
export class Targets {
  readonly #allowed: readonly URL[]

  private constructor(allowed: readonly URL[]) {
    this.#allowed = allowed
  }

  /** @param text URLs with commas in between. @returns the reason, in words for people, why one cannot be used. */
  static parse(text: string): Targets | string {
    const allowed: URL[] = []
    for (const each of text.split(',').map((part) => part.trim())) {
      const url = plainUrl(each)
      if (typeof url === 'string') return `"${each}" ${url}`
      if (url.search !== '') return `"${each}" has a query`
      allowed.push(url)
    }
    return new Targets(allowed)
  }

  /** @throws KvError `invalid_argument` for a URL that cannot be used, or is not allowed. */
  require(text: string): URL {
    const url = plainUrl(text)
    if (typeof url === 'string') throw invalid('url', `url ${url}`)
    if (!this.allows(url)) throw invalid('url', 'url is not among those that --webhook-targets of this server allows')
    return url
  }

  allows(url: URL): boolean {
    return this.#allowed.some(({ origin, pathname }) => {
      if (url.origin !== origin || !url.pathname.startsWith(pathname)) return false
      return pathname.endsWith('/') || ['', '/'].includes(url.pathname.charAt(pathname.length))
    })
  }
}

/** @returns what is wrong with the URL, as the end of a sentence. */
function plainUrl(text: string): URL | string {
  if (text.length > URL_LENGTH_MAX) return `is longer than ${URL_LENGTH_MAX} characters`
  if (!URL.canParse(text)) return 'is no URL'
  const url = new URL(text)
  if (url.protocol !== 'http:' && url.protocol !== 'https:') return 'must begin with http:// or https://'
  if (url.username !== '' || url.password !== '') return 'must not hold credentials'
  if (url.hash !== '') return 'must have no fragment'
  if (HIDDEN_STEPS.test(url.pathname)) return 'must not hold encoded slashes or percent signs, or dots with a semicolon'
  return url
}
