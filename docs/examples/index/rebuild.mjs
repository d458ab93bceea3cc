/** The whole index from all documents at once, as a nightly batch would make it. Pure. */
import { clusterValue } from './canonical.mjs'
import { encodeStems, stemsOf } from './derived.mjs'
import { addressOf } from './text.mjs'

/** @param {Iterable<[name: string, text: string]>} documents @returns {Map<string, string>} the index, by key */
export function rebuild(documents) {
  const index = new Map()
  /** Number of documents that link to each address. @type {Map<string, number>} */
  const anchors = new Map()
  /** @type {Map<string, string[]>} */
  const clusters = new Map()
  for (const [name, text] of documents) {
    const stems = stemsOf(name, text)
    index.set(`derived/${name}`, encodeStems(stems))
    for (const [stem, value] of stems) {
      index.set(`${stem}/${name}`, value)
      const [kind = ''] = stem.split('/', 1)
      const subject = stem.slice(kind.length + 1)
      if (kind === 'anchor') anchors.set(subject, (anchors.get(subject) ?? 0) + 1)
      if (kind === 'hash') clusters.set(subject, [...(clusters.get(subject) ?? []), name])
    }
  }
  for (const [address, count] of anchors) index.set(`count/${address}`, String(count))
  for (const [hash, names] of clusters) {
    const members = names.map((name) => ({ name, anchors: anchors.get(addressOf(name) ?? '') ?? 0 }))
    index.set(`cluster/${hash}`, clusterValue(members) ?? '')
  }
  return index
}

/**
 * @param {Map<string, string>} found @param {Map<string, string>} wanted
 * @returns {string[]} what differs, a line each
 */
export function differences(found, wanted) {
  const shown = (/** @type {string | undefined} */ value) => (value === undefined ? 'nothing' : JSON.stringify(value))
  return [...new Set([...found.keys(), ...wanted.keys()])]
    .filter((key) => found.get(key) !== wanted.get(key))
    .map((key) => `${key} is ${shown(found.get(key))}, not ${shown(wanted.get(key))}`)
}
