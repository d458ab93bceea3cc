import fc from 'fast-check'
import { expect, test } from 'vitest'
import { decodeStems, encodeStems, notificationsOf, stemsOf, writesOf } from '../../../docs/examples/index/derived.mjs'
import { hashOf } from '../../../docs/examples/index/text.mjs'

const NAME = 'github.com/a/a/README.md'
const NOTHING = new Map<string, string>()

test('what follows from a document: words, anchors to others, hash, place', () => {
  const text = 'a link, a https://github.com/b/b and its own https://github.com/a/a'
  const hash = hashOf(text)
  const stems = stemsOf(NAME, text)
  expect(stems.get('word/a')).toBe('4')
  expect([...stems].filter(([stem]) => !stem.startsWith('word/'))).toEqual([
    ['anchor/github.com/b/b', '1'],
    [`hash/${hash}`, ''],
    ['at/github.com/a/a', hash],
  ])
  expect(stemsOf(NAME, undefined).size).toBe(0)
})

test('a changed document writes only what changed, and tells only what it concerns', () => {
  const before = stemsOf(NAME, 'red green https://github.com/b/b')
  const after = stemsOf(NAME, 'red red blue https://github.com/c/c')
  const [hashBefore, hashAfter] = [before, after].map((stems) => stems.get('at/github.com/a/a'))
  const { puts, deletes } = writesOf(NAME, before, after)
  expect(puts.map(([key]) => key)).toEqual([
    `word/red/${NAME}`,
    `word/blue/${NAME}`,
    `word/c/${NAME}`,
    `anchor/github.com/c/c/${NAME}`,
    `hash/${hashAfter}/${NAME}`,
    `at/github.com/a/a/${NAME}`,
  ])
  expect(deletes).toEqual([
    `word/green/${NAME}`,
    `word/b/${NAME}`,
    `anchor/github.com/b/b/${NAME}`,
    `hash/${hashBefore}/${NAME}`,
  ])
  expect(notificationsOf(before, after)).toEqual({
    counts: ['count/github.com/b/b', 'count/github.com/c/c', 'count/github.com/a/a'],
    cluster: [`cluster/${hashBefore}`, `cluster/${hashAfter}`],
  })
})

test('nothing changed: nothing is written and nobody is told', () => {
  const stems = stemsOf(NAME, 'red https://github.com/b/b')
  expect(writesOf(NAME, stems, new Map(stems))).toEqual({ puts: [], deletes: [] })
  expect(notificationsOf(stems, new Map(stems))).toEqual({ counts: [], cluster: [] })
})

test('a document that goes takes everything with it', () => {
  const stems = stemsOf(NAME, 'red')
  const { puts, deletes } = writesOf(NAME, stems, NOTHING)
  expect(puts).toEqual([])
  expect(deletes).toHaveLength(stems.size)
})

test('the writes lead from any state to any other', () => {
  const stems = fc
    .array(fc.tuple(fc.constantFrom('word/a', 'word/b', 'anchor/x/-/-', 'hash/1', 'at/y/-/-'), fc.string()))
    .map((entries) => new Map(entries))
  fc.assert(
    fc.property(stems, stems, (before, after) => {
      const index = new Map([...before].map(([stem, value]) => [`${stem}/d`, value]))
      const { puts, deletes } = writesOf('d', before, after)
      for (const [key, value] of puts) index.set(key, value)
      for (const key of deletes) expect(index.delete(key)).toBe(true)
      expect(index).toEqual(new Map([...after].map(([stem, value]) => [`${stem}/d`, value])))
      expect(decodeStems(encodeStems(after))).toEqual(after)
    }),
  )
})
