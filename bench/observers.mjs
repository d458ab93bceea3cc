// npm run bench:observers [-- --quick --only NAME[,NAME] --out DIR --rate N --documents N]
// What observers cost, and how soon they run; and an index that they keep, beside one that is rebuilt. Each measurement into
// DIR/observers-NAME.json. Linux only.
import { parseArgs } from 'node:util'
import { measure } from './measurements.mjs'
import { begun } from './observers/begun.mjs'
import { churn } from './observers/churn.mjs'
import { claims } from './observers/claims.mjs'
import { costs } from './observers/costs.mjs'
import { found } from './observers/found.mjs'
import { runs } from './observers/runs.mjs'

const MEASUREMENTS = { costs, claims, runs, begun, found, churn }
const FULL = {
  costs: { rounds: 25, requests: 3000 },
  claims: { cells: 100_000 },
  runs: { rounds: 5, changes: 20_000 },
  begun: { rate: 1000, seconds: 15 },
  found: { documents: 5361, rates: [10, 50, 100], seconds: 20 },
  churn: { documents: 5361, shares: [0.01, 0.1, 1] },
}
/** For finding what got slower. */
const QUICK = {
  costs: { rounds: 5, requests: 1500 },
  claims: { cells: 20_000 },
  runs: { rounds: 1, changes: 5000 },
  begun: { rate: 500, seconds: 2 },
  found: { documents: 100, rates: [20], seconds: 3 },
  churn: { documents: 100, shares: [0.1, 1] },
}

const { values } = parseArgs({
  options: {
    only: { type: 'string', default: Object.keys(MEASUREMENTS).join() },
    out: { type: 'string' },
    quick: { type: 'boolean', default: false },
    rate: { type: 'string' }, // Of `begun`, and of `found`.
    documents: { type: 'string' }, // Of `found` and `churn`.
  },
})

function number(name) {
  const number = Number(values[name])
  if (!(number > 0)) throw new Error(`--${name} ${values[name]} is no number above 0`)
  return number
}

function settingsOf(name) {
  const settings = { ...(values.quick ? QUICK : FULL)[name] }
  if (values.rate !== undefined && name === 'begun') settings.rate = number('rate')
  if (values.rate !== undefined && name === 'found') settings.rates = [number('rate')]
  if (values.documents !== undefined && 'documents' in settings) settings.documents = number('documents')
  return settings
}

await measure({ kind: 'observers', source: 'bench/observers.mjs', measurements: MEASUREMENTS, ...values, settingsOf })
