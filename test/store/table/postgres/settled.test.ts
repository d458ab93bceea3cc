import { expect, test } from 'vitest'
import { underWay } from '../../../../src/store/table/postgres/settled.js'

test.each([
  ['is listed', '7', '5:9:7,8', '7'],
  ['has ended', '6', '5:9:7,8', undefined],
  ['is the first that is not below the end of the list', '9', '9:9:', '9'],
  ['is younger than that', '12', '5:9:7,8', '12'],
  ['never was', '0', '9:9:', undefined],
  ['never was, half of a round later', '0', '3000000000:3000000000:', undefined],
  ['is listed with an epoch', '7', '4294967301:4294967305:4294967303', '7'],
  ['has ended in this epoch', '6', '4294967301:4294967305:4294967303', undefined],
  ['has ended before the epoch', '4294967290', '4294967301:4294967305:4294967303', undefined],
  ['has not ended before the epoch', '4294967290', '4294967290:4294967305:4294967290', '4294967290'],
  ['is the first of an epoch', '3', '4294967295:4294967295:', '3'],
] as const)('the holder of a row %s', (_, holder, snapshot, expected) => {
  expect(underWay(`${holder} ${snapshot}`)).toBe(expected)
})
