// npm run bench:changes [-- --quick --only NAME[,NAME] --out DIR --streams N]
// What the change feed and watchers cost and how soon they are told. Each measurement into DIR/changes-NAME.json. Linux only.
import { parseArgs } from 'node:util'
import { beside } from './changes/beside.mjs'
import { catchUp } from './changes/catch-up.mjs'
import { everybody } from './changes/everybody.mjs'
import { live } from './changes/live.mjs'
import { told } from './changes/told.mjs'
import { watchers } from './changes/watchers.mjs'
import { measure } from './measurements.mjs'

const MEASUREMENTS = { live, catch_up: catchUp, told, watchers, everybody, beside }
const FULL = {
  live: { changes: 200_000, rounds: 3 },
  catch_up: { changes: 100_000, rounds: 3 },
  told: { rate: 2000, seconds: 15 },
  watchers: { count: 10_000, rate: 500, seconds: 10, idleS: 20 },
  everybody: { count: 10_000, rounds: 5 },
  beside: { rounds: 15, requests: 3000 },
}
/** For finding what got slower. */
const QUICK = {
  live: { changes: 50_000, rounds: 1 },
  catch_up: { changes: 50_000, rounds: 1 },
  told: { rate: 1000, seconds: 3 },
  watchers: { count: 2000, rate: 200, seconds: 3, idleS: 3 },
  everybody: { count: 2000, rounds: 2 },
  beside: { rounds: 5, requests: 1500 },
}

const { values } = parseArgs({
  options: {
    only: { type: 'string', default: Object.keys(MEASUREMENTS).join() },
    out: { type: 'string' },
    quick: { type: 'boolean', default: false },
    streams: { type: 'string' }, // Of `watchers` and `everybody`.
  },
})

function settingsOf(name) {
  const settings = { ...(values.quick ? QUICK : FULL)[name] }
  if (values.streams !== undefined && 'count' in settings) settings.count = Number(values.streams)
  return settings
}

await measure({ kind: 'changes', source: 'bench/changes.mjs', measurements: MEASUREMENTS, ...values, settingsOf })
