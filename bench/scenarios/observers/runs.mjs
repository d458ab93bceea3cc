// db.observe in a process of its own: one put per change, one by one and in batches.
import { summaryOf } from '../../harness/numbers.mjs'
import { row } from '../../harness/report.mjs'
import { get } from '../../harness/requests.mjs'
import { drained, putCells, register, withWorker } from './cells.mjs'

const CONTENDERS = [
  ['`db.observe`, 64 runs at once', { concurrency: 64 }, { unit: 'runs/s', goal: 3000, floor: 1000 }],
  ['`db.observe`, `batch: 100`', { batch: 100, concurrency: 8 }, { unit: 'changes/s', goal: 15_000, floor: 4000 }],
]

export const runs = {
  full: { rounds: 5, changes: 20_000 },
  quick: { rounds: 1, changes: 3000 },
  async run(settings) {
    const rows = []
    for (const [name, options, bounds] of CONTENDERS) {
      const rates = await withWorker((server, worker) => measure(server, worker, options, settings))
      const { median, min, max } = summaryOf(rates)
      rows.push(row(name, median, { ...bounds, spread: [min, max] }))
    }
    return rows
  },
}

/** The first round warms up. */
async function measure(server, worker, options, { rounds, changes }) {
  const rates = []
  await register(server, 'runs', 'in/')
  for (let round = 0; round <= rounds; round++) {
    const written = (round + 1) * changes
    await putCells(server, 'in/', round * changes, written)
    const since = performance.now()
    await worker.call('observe', 'runs', 'in/', 'out/', options)
    await drained(server, ['runs'])
    rates.push((changes * 1000) / (performance.now() - since))
    await worker.call('stop')
    const { count } = await server.call(get('/v1/kv?count_only=true&prefix=out/'))
    if (count !== written) throw new Error(`${count} keys were written, not ${written}`)
  }
  return rates.slice(1)
}
