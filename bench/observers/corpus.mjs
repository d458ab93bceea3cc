// Documents of the example, and changed ones.
import { fileURLToPath } from 'node:url'
import { packageDocuments, pieces, some, speechDocuments } from '../../docs/examples/index/documents.mjs'

const PIECE_BYTES = 2048
/** Of the words of a changed document, so many are others. */
const CHANGED_SHARE = 0.1

/** Speeches in pieces of 2 KB; without their package, READMEs and licences cut likewise. */
export function corpus(limit) {
  return some(
    speechDocuments() ?? cut(packageDocuments(fileURLToPath(new URL('../../node_modules', import.meta.url)))),
    limit,
  )
}

function cut(documents) {
  const all = [...documents].flatMap(([name, text]) =>
    pieces(text, PIECE_BYTES).map((piece, i) => [`${name}/${String(i + 1).padStart(3, '0')}`, piece]),
  )
  return new Map(all)
}

/** The same sequence in every run. */
export function randomOf(seed) {
  let state = seed
  return (n) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    return Math.floor((state / 2 ** 32) * n)
  }
}

/** Replaces a tenth of the words by words of other documents. @param texts of all documents. */
export function changed(text, texts, random) {
  const other = texts[random(texts.length)].split(/\s+/)
  const words = text.split(/\s+/)
  for (let i = 0; i < Math.max(1, words.length * CHANGED_SHARE); i++)
    words[random(words.length)] = other[random(other.length)]
  return words.join(' ')
}

/** So many documents at random, with their new text. */
export function changesOf(documents, share, random) {
  const names = [...documents.keys()]
  const texts = [...documents.values()]
  const count = Math.max(1, Math.round(names.length * share))
  for (let i = 0; i < count; i++) {
    const j = i + random(names.length - i)
    ;[names[i], names[j]] = [names[j], names[i]]
  }
  return new Map(names.slice(0, count).map((name) => [name, changed(documents.get(name), texts, random)]))
}
