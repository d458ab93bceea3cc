import { parseArgs } from 'node:util'
import { WorldModel } from './model.js'
import { type Searched, search } from './search.js'
import { searchTable } from './table-servers.js'
import { WORLDS } from './worlds.js'

/** A world of which there is more is too large for its memory. */
const STATES_MAX = 8_000_000

const { values } = parseArgs({
  options: {
    /** Names, separated by commas. Default: all that are not long. */
    world: { type: 'string' },
    long: { type: 'boolean', default: false },
  },
})
const names = values.world?.split(',') ?? Object.keys(WORLDS).filter((name) => values.long || !WORLDS[name]?.isLong)

for (const name of names) {
  const world = WORLDS[name]
  if (world === undefined) throw new Error(`there is no world ${name}`)
  const began = performance.now()
  let states = 0
  let depth = 0
  let violation: Searched['violation']
  const { plans = [], table } = world
  const searches = plans.map((plan) => () => search(new WorldModel(plan), STATES_MAX))
  if (table !== undefined) searches.push(() => searchTable(table, values.long && !world.isLong ? 2 : 1))
  for (const one of searches) {
    const searched = await one()
    states += searched.states
    depth = Math.max(depth, searched.depth)
    violation = searched.violation
    if (violation !== undefined) break
  }
  const seconds = ((performance.now() - began) / 1000).toFixed(1)
  console.log(`${name}: ${states} states, depth ${depth}, ${seconds} s`)
  if (violation === undefined) continue
  const { what, trace } = violation
  console.log(`VIOLATION: ${what}\n${trace.map((label, i) => `${String(i + 1).padStart(4)}. ${label}`).join('\n')}`)
  process.exitCode = 1
}
