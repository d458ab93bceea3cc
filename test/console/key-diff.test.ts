import { expect, test } from 'vitest'
import type { Pair } from '../../src/console/answers.js'
import { diffOf, kindOf, previewsOf } from '../../src/console/key-diff.js'

const encoder = new TextEncoder()
/** `a1` is the key a in version 1. */
const side = (text: string, next?: string) => ({
  pairs: text
    .split(' ')
    .filter(Boolean)
    .map((one): Pair => ({ key: one.slice(0, 1), commit_ts: Number(one.slice(1)) })),
  next: next === undefined ? undefined : encoder.encode(next),
})
const told = (before: ReturnType<typeof side>, after: ReturnType<typeof side>) => {
  const { changes, next, compared } = diffOf(before, after)
  const keys = changes.map(
    ({ key, before, after }) => `${String(key)}${before?.commit_ts ?? '-'}${after?.commit_ts ?? '-'}`,
  )
  return [keys.join(' '), next && new TextDecoder().decode(next), compared]
}

test.each([
  [side(''), side(''), ['', undefined, 0]],
  [side('a1 b1'), side('a1 b1'), ['', undefined, 2]],
  [side('a1 b1 d1'), side('a2 c3 d1'), ['a12 b1- c-3', undefined, 4]],
  [side(''), side('a1 b2'), ['a-1 b-2', undefined, 2]],
  [side('a1 b2'), side(''), ['a1- b2-', undefined, 2]],
])('versions of two times are merged: %#', (before, after, expected) => expect(told(before, after)).toEqual(expected))

test('only as far as both are known', () => {
  expect(told(side('a1 b1', 'c'), side('a1 b1 c1 d1'))).toEqual(['', 'c', 2])
  expect(told(side('a1 b1 c1', 'd'), side('c2', 'd'))).toEqual(['a1- b1- c12', 'd', 3])
  expect(told(side('a1 c1', 'd'), side('a1 b1', 'b\0'))).toEqual(['b-1', 'b\0', 2])
})

test('keys are in the order of their bytes, also where they are no text', () => {
  const raw = { base64: '/w==' }
  const after = {
    pairs: [
      { key: 'é', commit_ts: 1 },
      { key: raw, commit_ts: 2 },
    ],
    next: undefined,
  }
  const { changes } = diffOf({ pairs: [{ key: raw, commit_ts: 2 }], next: undefined }, after)
  expect(changes.map(({ key }) => key)).toEqual(['é'])
})

test('what has ended by itself is expired, not removed', () => {
  const before = { key: 'k', commit_ts: 1, expire_ts: 5 }
  const kinds = [4, 5].map((to) => kindOf({ key: 'k', before, after: undefined }, to))
  expect(kinds).toEqual(['removed', 'expired'])
})

test('previews begin where two long values begin to differ', () => {
  const same = 'x'.repeat(5000)
  const begin = `…${'x'.repeat(24)}`
  expect(previewsOf(`${same}old`, `${same}new`)).toEqual({ before: `${begin}old`, after: `${begin}new`, isSame: false })
  expect(previewsOf('old', 'new')).toEqual({ before: 'old', after: 'new', isSame: false })
  expect(previewsOf(same, same)).toMatchObject({ after: `${same.slice(0, 120)}…`, isSame: true })
  expect(previewsOf({ base64: '/w==' }, { base64: '/w==' })).toEqual({ before: '\\xff', after: '\\xff', isSame: true })
})
