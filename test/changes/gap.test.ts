import { expect, test } from 'vitest'
import { Gap, widen } from '../../src/changes/gap.js'
import type { Change } from '../../src/percolator/change.js'
import type { ChangeLog, ChangePage } from '../../src/store/change-log.js'
import { utf8 } from '../store/support.js'

const change = (key: string, commitTs: number): Change => ({
  type: 'delete',
  key: utf8(key),
  commitTs,
  startTs: commitTs - 1,
})

test('an acknowledgement of its next change during a look does not lead a gap over the one after it', async () => {
  const gap = new Gap({ start: utf8('a'), end: utf8('b') }, 10)
  const other = new Gap({ start: utf8('x'), end: utf8('y') }, 10)
  const pages: ChangePage[] = [
    { changes: [change('a1', 50), change('a1', 60)], upTo: 70 },
    { changes: [change('a1', 80)], upTo: 90 },
  ]
  const log = {
    async *read() {
      yield* pages
    },
  } as unknown as ChangeLog
  const pause = async (): Promise<void> => gap.passed(55)
  await widen([gap, other], log, 90, { pause })
  expect([gap.next, gap.end]).toEqual([undefined, 55])
  expect([other.next, other.end]).toEqual([undefined, 90])
  await widen([gap], { read: () => pages } as unknown as ChangeLog, 90, { pause: async () => {} })
  expect([gap.next, gap.end]).toEqual([60, 59])
})
