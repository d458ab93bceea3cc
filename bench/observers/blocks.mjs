// Contenders in turn on one server, by processor time of the server and by rate.
import { scheduledMicros } from '../proc.mjs'
import { median } from '../process.mjs'
import { load } from '../ratios/load.mjs'
import { percentile, row } from './goals.mjs'

export const CONNECTIONS = 64
const NAMES = { cpu: 'by CPU', main: 'by main thread', rate: 'by rate' }

/** A block of requests. @returns rate, and processor time of the server per request, of all threads and of the main one. */
export async function block(server, count, operation) {
  const before = scheduledMicros(server)
  const { rate } = await load({ url: server.url, connections: CONNECTIONS, count, operation })
  const after = scheduledMicros(server)
  return { rate, cpu: (after.all - before.all) / count, main: (after.main - before.main) / count }
}

/** Contenders in turn, the other way round in every second round. @param contenders functions that answer a block. */
export async function alternate(contenders, rounds) {
  const blocks = Object.fromEntries(Object.keys(contenders).map((name) => [name, []]))
  for (const run of Object.values(contenders)) await run() // Warm.
  for (let round = 0; round < rounds; round++) {
    const order = Object.entries(contenders)
    for (const [name, run] of round % 2 === 0 ? order : order.toReversed()) blocks[name].push(await run())
  }
  return blocks
}

/** @param field of which more is a lower ratio, except of the rate. @returns median and spread over the rounds. */
function ratioOf(blocks, of, over, field) {
  const ratios = blocks[of].map((one, i) => {
    const other = blocks[over][i]
    return field === 'rate' ? one.rate / other.rate : other[field] / one[field]
  })
  return { value: median(ratios), spread: [percentile(ratios, 0.25), percentile(ratios, 0.75)] }
}

/** @param field by which the goal is judged. */
export function ratioRows(blocks, name, of, over, field, bounds) {
  const typical = (contender, what) => median(blocks[contender].map((one) => one[what]))
  const ratios = ['cpu', 'main', 'rate'].map((one) => {
    const { value, spread } = ratioOf(blocks, of, over, one)
    return row(`${name}: ${NAMES[one]}`, value, { ...(one === field ? bounds : {}), spread })
  })
  const added = typical(of, 'cpu') - typical(over, 'cpu')
  return [...ratios, row(`${name}: CPU added`, added, { unit: `µs to ${typical(over, 'cpu').toFixed(1)}` })]
}
