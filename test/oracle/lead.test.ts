import { expect, test } from 'vitest'
import { isHeldBack, isUnreachable } from '../../src/oracle/lead.js'

const saying = (...epochs: number[]) => epochs.map((unreachedEpoch) => ({ unreachedEpoch }))

test.each([
  ['alone', [], false],
  ['the other one reaches it', [0], false],
  ['the other one does not', [7], true],
  ['the other one did not reach an earlier leader', [6], false],
  ['one of two', [7, 0], false],
  ['two of two', [7, 7], true],
  ['two of three', [7, 0, 7], true],
  ['two of four', [7, 0, 7, 0], false],
  ['three of four, one of an earlier leader', [7, 6, 7, 0], false],
  ['three of four', [7, 7, 7, 0], true],
] as const)('a leader of epoch 7 resigns: %s', (_, epochs, resigns) => {
  expect(isUnreachable(7, saying(...epochs))).toBe(resigns)
})

test.each([
  ['just now', 0, 0, [0, 0], true],
  ['a minute ago, nearly', 59_999, 9999, [0], true],
  ['a minute ago', 60_000, 0, [0], false],
  ['and nobody else takes over', 12_000, 10_000, [0], false],
  ['and is alone now', 1000, 1000, [], false],
  ['never', Number.POSITIVE_INFINITY, 0, [0], false],
] as const)('a server that has resigned holds back: %s', (_, agoMs, silentMs, epochs, isBack) => {
  expect(isHeldBack({ agoMs, silentMs, others: saying(...epochs) })).toBe(isBack)
})
