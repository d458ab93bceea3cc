// Documents of the example, and changed ones.
import { fileURLToPath } from 'node:url'
import { packageDocuments, pieces, some, speechDocuments } from '../../../docs/examples/index/documents.mjs'
import { OBSERVERS } from '../../../docs/examples/index/observers.mjs'
import { withConnections } from '../../harness/connection.mjs'
import { put } from '../../harness/requests.mjs'
import { register } from './cells.mjs'

const PIECE_BYTES = 2048
/** Of the words of a changed document, so many are others. */
const CHANGED_SHARE = 0.1
const PUTS_AT_ONCE = 16

export const OBSERVER_NAMES = OBSERVERS.map(([name]) => name)

export async function registerIndex(server) {
  for (const [name, prefix] of OBSERVERS) await register(server, name, prefix)
}

/** Speeches in pieces of 2 KB; without their package, READMEs and licences cut likewise. */
export function corpus(limit) {
  const modules = fileURLToPath(new URL('../../../node_modules', import.meta.url))
  return some(speechDocuments() ?? cut(packageDocuments(modules)), limit)
}

function cut(documents) {
  const all = [...documents].flatMap(([name, text]) =>
    pieces(text, PIECE_BYTES).map((piece, i) => [`${name}/${String(i + 1).padStart(3, '0')}`, piece]),
  )
  return new Map(all)
}

/** Each document by a PUT of its own, as they would arrive. @param documents texts by name */
export async function putDocuments(url, documents) {
  const left = documents.entries()
  await withConnections(url, PUTS_AT_ONCE, async (connection) => {
    for (const [name, text] of left) await connection.call(put(`/v1/kv/doc/${encodeURI(name)}`, text))
  })
}

/** Replaces a tenth of the words by words of other documents. @param texts of all documents. */
export function changed(text, texts, choices) {
  const other = texts[choices.below(texts.length)].split(/\s+/)
  const words = text.split(/\s+/)
  for (let i = 0; i < Math.max(1, words.length * CHANGED_SHARE); i++)
    words[choices.below(words.length)] = other[choices.below(other.length)]
  return words.join(' ')
}

/** So many documents at random, with their new text. */
export function changesOf(documents, share, choices) {
  const names = [...documents.keys()]
  const texts = [...documents.values()]
  const count = Math.max(1, Math.round(names.length * share))
  for (let i = 0; i < count; i++) {
    const j = i + choices.below(names.length - i)
    ;[names[i], names[j]] = [names[j], names[i]]
  }
  return new Map(names.slice(0, count).map((name) => [name, changed(documents.get(name), texts, choices)]))
}
