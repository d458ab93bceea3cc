import fc from 'fast-check'
import { expect, test } from 'vitest'
import { quoted, splitWords } from '../../../src/commands/shell/split-words.js'

test.each([
  ['', []],
  ['  put  k\tv ', ['put', 'k', 'v']],
  [`put 'a b' "c'd"`, ['put', 'a b', "c'd"]],
  [`put a\\ b c\\\\d`, ['put', 'a b', 'c\\d']],
  [`put '' ""`, ['put', '', '']],
  [`a'b c'd`, ['ab cd']],
  [`'a\\b' "a\\"b"`, ['a\\b', 'a"b']],
  ['end\\', ['end\\']],
])('%j is %j', (line, words) => {
  expect(splitWords(line).words.map(({ text }) => text)).toEqual(words)
})

test('an open quote and an open word are told', () => {
  expect(splitWords('get "a b')).toMatchObject({
    isOpen: true,
    openQuote: '"',
    words: [{ at: 0 }, { text: 'a b', at: 4 }],
  })
  expect(splitWords('get a')).toMatchObject({ isOpen: true, openQuote: undefined })
  expect(splitWords('get a ')).toMatchObject({ isOpen: false })
})

test('a quoted text is read as it was', () => {
  fc.assert(
    fc.property(fc.array(fc.string()), (texts) => {
      expect(splitWords(texts.map(quoted).join(' ')).words.map(({ text }) => text)).toEqual(texts)
    }),
  )
})
