import { readdir, readFile } from 'node:fs/promises'
import { posix } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'

const SRC = fileURLToPath(new URL('../src/', import.meta.url))

/**
 * The layers of `src/`, lowest first; docs/architecture.md draws them. A file imports its own folder, and what stands in an
 * earlier row; folders of one row do not import each other. Each entry is a folder with the folders in it that have no entry
 * of their own, or a file.
 */
const LAYERS: readonly (readonly string[])[] = [
  ['instant.ts', 'limits.ts', 'logger.ts', 'timestamp.ts', 'version.ts'],
  ['event-loop', 'readings'],
  ['errors', 'meters'],
  ['bytes'],
  ['percolator'],
  ['observers/rules', 'leases/rules', 'changes/rules'],
  ['oracle', 'coordinator', 'backup', 'access', 'cluster'],
  ['store'],
  ['store/calls'],
  ['store/table/layout'],
  ['store/table/format'],
  ['store/table/log', 'store/table/observers', 'store/table/restore'],
  ['store/table/rows'],
  ['store/table/records', 'store/table/waits', 'store/table/check'],
  ['store/table'],
  ['store/table/bigtable', 'store/table/postgres'],
  ['store/leveldb/data-directory-error.ts'],
  ['store/leveldb/files', 'store/leveldb/directory/sync-directory.ts'],
  ['store/leveldb/records'],
  ['store/leveldb/engine', 'store/leveldb/memory'],
  ['store/leveldb/directory', 'store/leveldb/rows'],
  ['store/leveldb/integrity'],
  ['store/leveldb/repair'],
  ['store/leveldb'],
  ['txn', 'gc', 'observers', 'changes', 'leases'],
  ['database'],
  ['client'],
  ['client/http'],
  ['client/index.ts'],
  ['console', 'keyv', 'level', 'rate-limit', 'session'],
  ['embedded'],
  ['index.ts'],
  ['kv-connect'],
  ['http/wire'],
  ['http/load'],
  ['webhooks'],
  ['http/connections'],
  ['http/admission'],
  ['http/metrics', 'http/openapi'],
  ['http/routes', 'http/fast-lane'],
  ['http'],
  ['server'],
  ['commands'],
  ['cli.ts'],
]

/** Columns: folders that must not import what stands below them in another column. */
const APART: readonly { readonly folder: string; readonly from: readonly string[] }[] = [
  {
    folder: 'client',
    from: ['oracle', 'backup', 'access', 'cluster', 'store', 'txn', 'gc', 'observers', 'changes', 'leases', 'database'],
  },
  {
    folder: 'console',
    from: ['oracle', 'backup', 'access', 'cluster', 'store', 'txn', 'gc', 'observers', 'changes', 'leases', 'database'],
  },
  {
    folder: 'level',
    from: ['oracle', 'backup', 'access', 'cluster', 'store', 'txn', 'gc', 'observers', 'changes', 'leases', 'database'],
  },
  {
    folder: 'http',
    from: ['client', 'console', 'embedded', 'level', 'store/calls', 'store/leveldb', 'store/table'],
  },
  {
    folder: 'keyv',
    from: ['oracle', 'backup', 'access', 'cluster', 'store', 'txn', 'gc', 'observers', 'changes', 'leases', 'database'],
  },
  {
    folder: 'rate-limit',
    from: ['oracle', 'backup', 'access', 'cluster', 'store', 'txn', 'gc', 'observers', 'changes', 'leases', 'database'],
  },
  {
    folder: 'session',
    from: ['oracle', 'backup', 'access', 'cluster', 'store', 'txn', 'gc', 'observers', 'changes', 'leases', 'database'],
  },
  { folder: 'embedded', from: ['client/http'] },
  { folder: 'database', from: ['store/calls', 'store/leveldb', 'store/table'] },
  { folder: 'txn', from: ['store/calls', 'store/leveldb', 'store/table'] },
  { folder: 'gc', from: ['store/calls', 'store/leveldb', 'store/table'] },
  { folder: 'observers', from: ['store/calls', 'store/leveldb', 'store/table'] },
  { folder: 'changes', from: ['store/calls', 'store/leveldb', 'store/table'] },
  { folder: 'leases', from: ['store/calls', 'store/leveldb', 'store/table'] },
]

function isIn(file: string, folder: string): boolean {
  return file === folder || file.startsWith(`${folder}/`)
}

/** The row of a file, by its longest entry. @throws Error for a file that belongs to no layer. */
function layerOf(file: string): { readonly row: number; readonly entry: string } {
  let found = { row: -1, entry: '' }
  for (const [row, entries] of LAYERS.entries())
    for (const entry of entries) if (isIn(file, entry) && entry.length > found.entry.length) found = { row, entry }
  if (found.row === -1) throw new Error(`src/${file} belongs to no layer: give it a place in ${import.meta.url}`)
  return found
}

function importsOf(file: string, source: string): string[] {
  return [...source.matchAll(/(?:from |import\(|import )'(\.[^']+)\.js'/g)].map(([, specifier = '']) =>
    posix.join(posix.dirname(file), `${specifier}.ts`),
  )
}

test('imports point downwards, within their column', { tags: ['long'] }, async () => {
  const files = (await readdir(SRC, { recursive: true })).filter((file) => /\.tsx?$/.test(file))
  const wrong: string[] = []
  for (const file of files) {
    const own = layerOf(file)
    for (const imported of importsOf(file, await readFile(SRC + file, 'utf8'))) {
      const other = layerOf(imported)
      // Rules of features are pure, as the protocol is, and its neighbours.
      const isRule = other.entry.endsWith('/rules')
      const isApart =
        !isRule && APART.some(({ folder, from }) => isIn(file, folder) && from.some((other) => isIn(imported, other)))
      if (isApart || (other.entry !== own.entry && other.row >= own.row)) wrong.push(`${file} imports ${imported}`)
    }
  }
  expect(wrong).toEqual([])
  expect(files.length).toBeGreaterThan(200)
})
