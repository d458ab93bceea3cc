import { expect, test } from 'vitest'
import type { RowCondition } from '../../../src/store/table/layout/table.js'
import { type Fate, MemoryTable } from './memory-table.js'
import { togetherSuite } from './together-suite.js'

const OLD = Buffer.of(1)
const NEW = Buffer.of(2)

const together = (fate: () => Fate): MemoryTable => new MemoryTable(fate, () => 1, undefined, { isTogether: true })

togetherSuite(async () => {
  const table = together(() => 'done')
  return [table, table]
})

test.each([
  ['not done', 0],
  ['done, answer lost', 2],
  ['late', 2],
] as const)('an unknown outcome of rows that change together: %s', async (fate, found) => {
  const table = together(() => fate)
  const revision = { family: 'v', qualifier: Buffer.from('r') } as const
  const rows = ['a', 'b'].map((key): RowCondition => ({ key: Buffer.from(key), expected: { ...revision, value: OLD } }))
  for (const { key } of rows) table.put(key, [{ ...revision, value: OLD }])
  const write = [{ ...revision, value: NEW }]
  expect(await table.changeTogether?.(rows, async () => [write, write])).toBe('unknown')
  const range = { start: Buffer.alloc(0), end: undefined }
  const read = await table.rows({ ranges: [range], columns: [{ family: 'v' }], settled: true })
  expect(read.filter(({ cells }) => cells[0]?.value.equals(NEW))).toHaveLength(found)
})
