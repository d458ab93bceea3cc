/** A document's text, taken apart. Pure. */
import { createHash } from 'node:crypto'

const WORD = /[\p{L}\p{N}]+/gu
/** A longer run of letters is no word, and would be a large key. */
const WORD_BYTES_MAX = 64
/** Keeps `derived/DOC` below the size of a value, and the transaction below that of a request. */
const WORDS_MAX = 10_000
const LINK = /https?:\/\/[^\s<>"'`()[\]{}|\\^]+/giu
const ADDRESS_BYTES_MAX = 200
const ADDRESSES_MAX = 500
const HASH_DIGITS = 16

/** @param {string} text @returns {Map<string, number>} how often each word occurs, in the order of the text */
export function wordsOf(text) {
  const words = new Map()
  for (const [word] of text.normalize('NFKC').toLowerCase().matchAll(WORD)) {
    if (Buffer.byteLength(word) > WORD_BYTES_MAX) continue
    const count = words.get(word)
    if (count !== undefined || words.size < WORDS_MAX) words.set(word, (count ?? 0) + 1)
  }
  return words
}

/** @param {string} text @returns {Map<string, number>} how many links go to each address */
export function linksOf(text) {
  const links = new Map()
  for (const [link] of text.matchAll(LINK)) {
    const address = addressOfUrl(link)
    if (address === undefined) continue
    const count = links.get(address)
    if (count !== undefined || links.size < ADDRESSES_MAX) links.set(address, (count ?? 0) + 1)
  }
  return links
}

/**
 * The address of a page: its host and the first two parts of its path, such as `github.com/fastify/fastify`. Every address has
 * three parts, so that none is the beginning of another.
 * @param {string} url @returns {string | undefined} nothing when it is no URL
 */
export function addressOfUrl(url) {
  if (!URL.canParse(url)) return undefined
  const { hostname, pathname } = new URL(url)
  return addressOf(`${hostname.replace(/^www\./, '')}${pathname}`.toLowerCase())
}

/** The address at which a document of this name stands. @param {string} name @returns {string | undefined} */
export function addressOf(name) {
  const [host, ...path] = name.split('/').filter((part) => part !== '')
  const [owner = '-', page = '-'] = path
  const address = `${host}/${owner}/${page.replace(/[.,;:!?*_~]+$/, '').replace(/\.git$/, '') || '-'}`
  return Buffer.byteLength(address) <= ADDRESS_BYTES_MAX ? address : undefined
}

/** Texts that differ in white space only have the same hash. @param {string} text */
export function hashOf(text) {
  const canonical = text.trim().replace(/\s+/g, ' ')
  return createHash('sha256').update(canonical).digest('hex').slice(0, HASH_DIGITS)
}
