import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { packageDocuments, pieces, repositoryOf, some } from '../../../docs/examples/index/documents.mjs'

const REPOSITORIES = [
  ['fastify/fastify', 'github.com/fastify/fastify'],
  ['github:fastify/fastify', 'github.com/fastify/fastify'],
  [{ url: 'git+https://github.com/Biomejs/biome.git' }, 'github.com/biomejs/biome'],
  [{ url: 'git@github.com:a/b.git' }, 'github.com/a/b'],
  [{ url: 'ssh://github.com/browserify/resolve.git' }, 'github.com/browserify/resolve'],
  [{ url: 'git://gitlab.com/a/b' }, 'gitlab.com/a/b'],
  ['nonsense', undefined],
  [undefined, undefined],
] as const

test.each(REPOSITORIES)('the repository %j', (repository, wanted) => expect(repositoryOf({ repository })).toBe(wanted))

test('READMEs and licences of packages, of those with a scope and of packages inside packages', async () => {
  const root = await mkdtemp(join(tmpdir(), 'perkv-documents-'))
  onTestFinished(() => rm(root, { recursive: true, force: true }))
  const files: Record<string, string> = {
    'a/package.json': '{"name":"a","version":"1.0.0","repository":"o/a"}',
    'a/README.md': 'a',
    'a/LICENSE': 'MIT',
    'a/readme.js': 'a',
    'a/index.js': '',
    'a/node_modules/b/package.json': '{"name":"b","version":"0.1.0"}',
    'a/node_modules/b/readme': 'b',
    '@s/c/package.json': '{"name":"@s/c","version":"2.0.0"}',
    '@s/c/LICENCE.txt': 'C',
    '@s/c/README.md': '',
    '.bin/README.md': 'none',
  }
  for (const [path, text] of Object.entries(files)) {
    await mkdir(dirname(join(root, path)), { recursive: true })
    await writeFile(join(root, path), text)
  }
  expect([...packageDocuments(root)]).toEqual([
    ['github.com/o/a/a@1.0.0/LICENSE', 'MIT'],
    ['github.com/o/a/a@1.0.0/README.md', 'a'],
    ['npmjs.com/package/@s/c/@s/c@2.0.0/LICENCE.txt', 'C'],
    ['npmjs.com/package/b/b@0.1.0/readme', 'b'],
  ])
})

test('pieces end at white space, and nothing is lost', () => {
  const text = 'one two three four five six'
  expect(pieces(text, 5)).toEqual(['one two', 'three', 'four five', 'six'])
  expect(pieces('', 5)).toEqual([])
})

test('some documents are taken at even distances', () => {
  const all = new Map(['a', 'b', 'c', 'd'].map((name) => [name, name]))
  expect([...some(all, 2).keys()]).toEqual(['a', 'c'])
  expect(some(all, 9)).toBe(all)
})
