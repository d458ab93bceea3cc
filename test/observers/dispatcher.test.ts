import fc from 'fast-check'
import { test } from 'vitest'
import { DispatchedCells, histories } from './dispatched-cells.js'

const RUNS = Number(process.env['PERKV_TEST_RUNS'] ?? 4000)

test.each([
  { fifo: 2, found: 2, claimsMax: 1000 },
  { fifo: 1, found: 6, claimsMax: 1000 },
  { fifo: 4, found: 1, claimsMax: 1000 },
  { fifo: 1, found: 2, claimsMax: 1 },
  { fifo: 2, found: 1, claimsMax: 2 },
])(
  'in random histories no cell is forgotten, and none is handed out twice within its lease: %o',
  { tags: ['long'] },
  (sizes) => {
    fc.assert(
      fc.property(histories, (events) => new DispatchedCells(sizes).run(events)),
      { numRuns: RUNS, seed: 1 },
    )
  },
)
