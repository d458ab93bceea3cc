import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { basename, dirname, join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'

/** Documents name files and link to each other; both go stale when something moves. */

const ROOT = fileURLToPath(new URL('..', import.meta.url))
const FILES = ['src', 'test', 'bench', 'docs'].flatMap((folder) =>
  readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' }).map((file) => join(folder, file)),
)
const NAMES = new Set(FILES.map((file) => basename(file)))
const DOCUMENTS = ['README.md', 'CONTRIBUTING.md', 'SECURITY.md', ...FILES.filter((file) => file.endsWith('.md'))]

/** A path in code spans is below the root, `src/`, `test/`, its document or the folder above; a name without a folder stands for any such file. */
const FILE_NAME = /`([\w.-]+(?:\/[\w.-]+)*\.(?:ts|mjs|sh|md))`/g
/** Also outside of code spans, as in commands. */
const ROOTED = /(?<![\w./-])(?:src|test|bench|docs)\/[\w./-]*\w/g

const fences = /^```.*?^```/gms

function existsFrom(document: string, path: string): boolean {
  if (!path.includes('/') && NAMES.has(path)) return true
  return ['', 'src', 'test', dirname(document), join(dirname(document), '..')].some((folder) =>
    existsSync(join(ROOT, folder, path)),
  )
}

/** Anchors of a document's headings, as GitHub makes them. */
function anchorsOf(file: string): string[] {
  const text = readFileSync(file, 'utf8').replace(fences, '')
  const seen = new Map<string, number>()
  return [...text.matchAll(/^#+ (.+)$/gm)].map(([, heading = '']) => {
    const anchor = heading
      .toLowerCase()
      .replace(/[^\p{L}\p{N}_ -]/gu, '')
      .replaceAll(' ', '-')
    const times = seen.get(anchor) ?? 0
    seen.set(anchor, times + 1)
    return times === 0 ? anchor : `${anchor}-${times}`
  })
}

/** The reference has a field `restoring.ts`, which is a timestamp. */
test.each(DOCUMENTS.filter((name) => name !== 'docs/reference.md'))('%s names files that exist', (document) => {
  const text = readFileSync(join(ROOT, document), 'utf8')
  const named = [...text.matchAll(FILE_NAME)].map(([, path = '']) => path)
  const missing = [...named, ...(text.match(ROOTED) ?? [])].filter((path) => !existsFrom(document, path))
  expect(missing).toEqual([])
})

test.each(DOCUMENTS)('%s links to what exists', (document) => {
  const file = join(ROOT, document)
  const links = [
    ...readFileSync(file, 'utf8')
      .replace(fences, '')
      .matchAll(/\]\(([^)\s]+)\)/g),
  ].map(([, to = '']) => to)
  const broken = links.filter((link) => {
    if (/^[a-z]+:/.test(link)) return false
    const [path = '', anchor] = link.split('#')
    const target = path === '' ? file : join(dirname(file), path)
    if (relative(ROOT, target).startsWith('..') || !existsSync(target)) return true
    return anchor !== undefined && !anchorsOf(target).includes(anchor)
  })
  expect(broken).toEqual([])
})

/** In the ready line, in the output of an example, and in the status. */
const SHOWN_VERSION = /\bPerKV (\d+\.\d+\.\d+) (?:is ready|at )|\{"version":"(\d+\.\d+\.\d+)"/g

test('the version that documents show is that of the package', () => {
  const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { version: string }
  const others = DOCUMENTS.flatMap((document) =>
    [...readFileSync(join(ROOT, document), 'utf8').matchAll(SHOWN_VERSION)]
      .filter(([, line, status]) => (line ?? status) !== version)
      .map(([text]) => `${document}: ${text}`),
  )
  expect(others).toEqual([])
})

/** A package in a table, and the version that it was tried with. */
const TRIED = /`((?:@[\w-]+\/)?[\w.-]+)` (\d+\.\d+)(?=[ ,|])/g

test('the versions in docs/ecosystem.md are those that the tests run with', () => {
  const { packages } = JSON.parse(readFileSync(join(ROOT, 'package-lock.json'), 'utf8')) as {
    readonly packages: Readonly<Record<string, { readonly version: string }>>
  }
  const tried = [...readFileSync(join(ROOT, 'docs/ecosystem.md'), 'utf8').matchAll(TRIED)]
  const others = tried.filter(
    ([, name, version]) => !packages[`node_modules/${name}`]?.version.startsWith(`${version}.`),
  )
  expect(others.map(([text]) => text)).toEqual([])
  expect(tried.length).toBeGreaterThan(10)
})
