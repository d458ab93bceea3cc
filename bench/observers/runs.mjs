// db.observe in a process of its own: one put per change, one by one and in batches.
import { median } from '../process.mjs'
import { get } from '../ratios/request.mjs'
import { withPerkv } from '../scale/servers.mjs'
import { drained, putCells, register } from './cells.mjs'
import { withConnections } from './connection.mjs'
import { row } from './goals.mjs'
import { withWorker } from './workers.mjs'

const CONTENDERS = [
  ['db.observe, 64 runs at once', { concurrency: 64 }, 'runs/s', 3000, 1000],
  ['db.observe, batch: 100', { batch: 100, concurrency: 8 }, 'changes/s', 15_000, 4000],
]

export async function runs({ rounds, changes }) {
  const rows = []
  for (const [name, options, unit, goal, floor] of CONTENDERS) {
    const rates = await withPerkv(({ url }) =>
      withWorker(url, (worker) => measure(url, worker, options, { rounds, changes })),
    )
    rows.push(row(name, median(rates), { unit, goal, floor, spread: [Math.min(...rates), Math.max(...rates)] }))
  }
  return { settings: { rounds, changes }, rows }
}

/** The first round warms up. */
async function measure(url, worker, options, { rounds, changes }) {
  const rates = []
  await register(url, 'runs', 'in/')
  for (let round = 0; round <= rounds; round++) {
    await putCells(url, 'in/', round * changes, (round + 1) * changes)
    const since = performance.now()
    await worker('observe', 'runs', 'in/', 'out/', options)
    await drained(url, ['runs'])
    rates.push((changes * 1000) / (performance.now() - since))
    await worker('stop')
    const written = (round + 1) * changes
    const { count } = await withConnections(url, 1, ([connection]) =>
      connection.json(get('/v1/kv?count_only=true&prefix=out/')),
    )
    if (count !== written) throw new Error(`${count} keys were written, not ${written}`)
  }
  return rates.slice(1)
}
