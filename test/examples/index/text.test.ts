import { expect, test } from 'vitest'
import { addressOf, addressOfUrl, hashOf, linksOf, wordsOf } from '../../../docs/examples/index/text.mjs'

test('words are counted in lower case, in any script', () => {
  expect([...wordsOf('To be, or NOT to be: Zoë’s être 42')]).toEqual([
    ['to', 2],
    ['be', 2],
    ['or', 1],
    ['not', 1],
    ['zoë', 1],
    ['s', 1],
    ['être', 1],
    ['42', 1],
  ])
  expect([...wordsOf('東京 ﬁne').keys()]).toEqual(['東京', 'fine'])
  expect(wordsOf('').size).toBe(0)
})

test('words have a bound in length and number', () => {
  expect([...wordsOf(`${'x'.repeat(65)} ${'y'.repeat(64)}`).keys()]).toEqual(['y'.repeat(64)])
  const many = wordsOf(Array.from({ length: 20_000 }, (_, i) => `w${i}`).join(' '))
  expect(many.size).toBe(10_000)
  expect(wordsOf(`${[...many.keys()].join(' ')} more w0`).get('w0')).toBe(2)
})

const ADDRESSES = [
  ['https://github.com/fastify/fastify', 'github.com/fastify/fastify'],
  ['http://www.GitHub.com/Fastify/Fastify.git#readme', 'github.com/fastify/fastify'],
  ['https://github.com/fastify/fastify/blob/main/README.md?x=1', 'github.com/fastify/fastify'],
  ['https://github.com/fastify', 'github.com/fastify/-'],
  ['https://fastify.dev', 'fastify.dev/-/-'],
  ['https://fastify.dev//docs//latest/', 'fastify.dev/docs/latest'],
  ['https://example.org/a/b.', 'example.org/a/b'],
  [`https://example.org/${'x'.repeat(200)}/y`, undefined],
  ['https://[nonsense', undefined],
] as const

test.each(ADDRESSES)('the address of %s', (url, wanted) => expect(addressOfUrl(url)).toBe(wanted))

test('a document stands at the address with which its name begins', () => {
  expect(addressOf('github.com/fastify/fastify/fastify@5.12.8/README.md')).toBe('github.com/fastify/fastify')
  expect(addressOf('hello')).toBe('hello/-/-')
})

test('links are found in Markdown, in brackets and bare', () => {
  const text =
    'See [a](https://github.com/a/a), <https://b.org/x/y>, `https://c.org` or https://github.com/A/A/issues. https://'
  expect([...linksOf(text)]).toEqual([
    ['github.com/a/a', 2],
    ['b.org/x/y', 1],
    ['c.org/-/-', 1],
  ])
})

test('equal texts have one hash, whatever their white space', () => {
  expect(hashOf('MIT License\r\n\r\nCopyright\n')).toBe(hashOf('MIT License\n\nCopyright'))
  expect(hashOf('MIT License')).not.toBe(hashOf('MIT Licence'))
  expect(hashOf('')).toMatch(/^[0-9a-f]{16}$/)
})
