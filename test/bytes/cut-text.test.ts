import fc from 'fast-check'
import { expect, test } from 'vitest'
import { cutText } from '../../src/bytes/cut-text.js'

test.each([
  ['short', 5, 'short'],
  ['longer', 5, 'longe'],
  ['äöü', 4, 'äö'],
  ['äöü', 3, 'ä'],
  ['a😀b', 4, 'a'],
  ['a😀b', 5, 'a😀'],
  ['\ud800x', 4, '\ufffdx'],
  ['\ud800x', 2, ''],
  ['', 0, ''],
])('%s is cut to %i bytes', (text, bytes, wanted) => {
  expect(cutText(text, bytes)).toBe(wanted)
})

test('a text is cut between two characters, as late as it can be', { tags: ['long'] }, () => {
  const property = fc.property(fc.string({ unit: 'binary' }), fc.nat({ max: 40 }), (text, bytesMax) => {
    const cut = cutText(text, bytesMax)
    expect(text.startsWith(cut)).toBe(true)
    expect(Buffer.byteLength(cut)).toBeLessThanOrEqual(bytesMax)
    const [next] = text.slice(cut.length)
    if (next !== undefined) expect(Buffer.byteLength(cut + next)).toBeGreaterThan(bytesMax)
  })
  fc.assert(property)
})
