/**
 * The index that follows from one document. Pure.
 *
 *   word/WORD/DOC       how often the word occurs in the document
 *   anchor/ADDRESS/DOC  how many links of the document go to the address
 *   hash/HASH/DOC       the document has this hash
 *   at/ADDRESS/DOC      the document stands at this address, and has this hash
 *
 * A stem is such a key without `/DOC`. The stems of a document are kept in `derived/DOC`, so that the next run knows which
 * keys the document no longer has.
 */
import { addressOf, hashOf, linksOf, wordsOf } from './text.mjs'

/** @typedef {Map<string, string>} Stems values by stem */

/** Where everything of the index stands. */
export const INDEX_PREFIXES = ['anchor/', 'at/', 'cluster/', 'count/', 'derived/', 'hash/', 'word/']

/** @param {string} name @param {string | undefined} text undefined: there is no such document @returns {Stems} */
export function stemsOf(name, text) {
  const stems = new Map()
  if (text === undefined) return stems
  const home = addressOf(name)
  const hash = hashOf(text)
  for (const [word, count] of wordsOf(text)) stems.set(`word/${word}`, String(count))
  for (const [address, count] of linksOf(text)) if (address !== home) stems.set(`anchor/${address}`, String(count))
  stems.set(`hash/${hash}`, '')
  if (home !== undefined) stems.set(`at/${home}`, hash)
  return stems
}

/** @param {Stems} stems */
export const encodeStems = (stems) => JSON.stringify(Object.fromEntries(stems))

/** @param {string | undefined} value of `derived/DOC` @returns {Stems} */
export const decodeStems = (value) => new Map(value === undefined ? [] : Object.entries(JSON.parse(value)))

/**
 * The writes that lead from one state of a document to the next: nothing for all that stayed.
 * @param {string} name @param {Stems} before @param {Stems} after
 * @returns {{ puts: [key: string, value: string][], deletes: string[] }}
 */
export function writesOf(name, before, after) {
  const puts = [...after].filter(([stem, value]) => before.get(stem) !== value)
  const deletes = [...before.keys()].filter((stem) => !after.has(stem))
  return {
    puts: puts.map(([stem, value]) => [`${stem}/${name}`, value]),
    deletes: deletes.map((stem) => `${stem}/${name}`),
  }
}

/**
 * The cells that have to run after the document changed.
 *
 * A document that comes, goes or changes its hash changes its clusters. It has the anchors of its address counted too: a count
 * that runs at the same time may have missed the document, and would not tell its cluster.
 * @param {Stems} before @param {Stems} after
 * @returns {{ counts: string[], cluster: string[] }} keys of the cells, by observer
 */
export function notificationsOf(before, after) {
  const changed = (/** @type {string} */ prefix, /** @type {boolean} */ byValue) =>
    [...new Set([...before.keys(), ...after.keys()])]
      .filter((stem) => stem.startsWith(prefix))
      .filter((stem) => (byValue ? before.get(stem) !== after.get(stem) : before.has(stem) !== after.has(stem)))
      .map((stem) => stem.slice(prefix.length))
  const addresses = new Set([...changed('anchor/', false), ...changed('at/', true)])
  return {
    counts: [...addresses].map((address) => `count/${address}`),
    cluster: changed('hash/', false).map((hash) => `cluster/${hash}`),
  }
}
