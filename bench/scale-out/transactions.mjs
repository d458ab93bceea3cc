// What each kind of transaction asks of Bigtable, in which order: measured by `npm run bench:bigtable -- bigtable/calls`.

const timestamp = { timestamps: 1 }
const read = (rows) => ({ read: rows })
const change = (rows) => ({ change: rows })
/** Of the primary: logged first where changes are read. */
const commit = { change: 1, isLogged: true }

/** Steps up to the answer, and what is left for afterwards. A step's changes go out together. */
export const KINDS = {
  get: { steps: [read(1)], afterwards: [] },
  'put of a known key': { steps: [timestamp, change(1), timestamp, commit], afterwards: [] },
  put: { steps: [timestamp, read(1), change(1), timestamp, commit], afterwards: [] },
  transfer: { steps: [timestamp, read(2), change(2), timestamp, commit], afterwards: [change(1)] },
}

/** Of a transaction: round trips before its answer, and what Bigtable does for it. */
export function demandOf(kind) {
  const { steps, afterwards } = KINDS[kind]
  const sum = (name) => [...steps, ...afterwards].reduce((total, step) => total + (step[name] ?? 0), 0)
  const reads = sum('read')
  const changes = sum('change')
  return {
    roundTrips: steps.length,
    calls: [...steps, ...afterwards].filter((step) => step.read !== undefined).length + changes,
    timestamps: sum('timestamps'),
    rowReads: reads + changes,
    rowWrites: changes,
  }
}

/** Work of a node for one transaction, in ms. */
export function nodeMsOf(kind, { readMs, writeMs }) {
  const { rowReads, rowWrites } = demandOf(kind)
  return rowReads * readMs + rowWrites * writeMs
}

/**
 * Runs one on a server. Its processor time is spread evenly over the moments between its steps.
 * @param server `{ core, oracle, table, log }`; no log: nobody reads changes.
 */
export function transact(kind, server, cpuMs, answered) {
  const { steps, afterwards } = KINDS[kind]
  const all = [...steps, ...afterwards]
  const ms = cpuMs / (all.length + 1)
  const go = (i) => {
    if (i === steps.length) answered()
    if (i < all.length) run(all[i], server, () => server.core.work(ms, () => go(i + 1)))
  }
  server.core.work(ms, () => go(0))
}

function run(step, { oracle, table, log }, done) {
  if (step.isLogged && log !== undefined) return log.append(() => run(step, { table }, done))
  if (step.timestamps !== undefined) return oracle.next(step.timestamps, done)
  if (step.read !== undefined) return table.read(step.read, done)
  let left = step.change
  for (let i = 0; i < step.change; i++) table.change(() => --left === 0 && done())
}
