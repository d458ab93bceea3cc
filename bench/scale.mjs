// node bench/scale.mjs [--only NAME,...] [--out DIR] [--data DIR] [--minutes N] [--keys-max N] [--seconds N] [--rounds N] [--size F]
// How PerKV does with more connections, keys, locks, versions and time; each measurement into DIR/NAME.json and .svg. Linux only.
import { mkdir } from 'node:fs/promises'
import { parseArgs } from 'node:util'
import { makeDirectory, removeDirectory } from './process.mjs'
import { connections } from './scale/connections.mjs'
import { gc } from './scale/gc.mjs'
import { keys } from './scale/keys.mjs'
import { mixed } from './scale/mixed.mjs'
import { print, write } from './scale/report.mjs'
import { startup } from './scale/startup.mjs'

const MEASUREMENTS = { connections, keys, startup, mixed, gc }

const { values } = parseArgs({
  options: {
    only: { type: 'string', default: Object.keys(MEASUREMENTS).join() },
    out: { type: 'string', default: 'docs/performance' },
    // Of `keys` and `startup`: kept, so that one run can leave the keys and another start on them.
    data: { type: 'string' },
    minutes: { type: 'string', default: '10' }, // Of `mixed`.
    'keys-max': { type: 'string', default: '10000000' },
    seconds: { type: 'string', default: '5' }, // Of each load.
    rounds: { type: 'string', default: '3' },
    size: { type: 'string', default: '1' }, // 0.01: everything that has no flag of its own is that much smaller.
  },
})

const names = values.only.split(',')
for (const name of names)
  if (!(name in MEASUREMENTS)) throw new Error(`no measurement "${name}": ${Object.keys(MEASUREMENTS).join(', ')}`)

function number(name) {
  const number = Number(values[name])
  if (!(number > 0)) throw new Error(`--${name} ${values[name]} is no number above 0`)
  return number
}

const sized = (standard) => Math.max(10, Math.round(standard * number('size')))
if (values.data !== undefined) await mkdir(values.data, { recursive: true })
const data = values.data ?? makeDirectory()
const context = {
  data,
  minutes: number('minutes'),
  keysMax: number('keys-max'),
  seconds: number('seconds'),
  rounds: number('rounds'),
  locks: sized(100_000),
  mixedKeys: sized(1_000_000),
  shapes: [
    { keys: 1000, versions: sized(1000) },
    { keys: sized(100_000), versions: 10 },
  ],
}

// In this order, whatever the order of --only: `startup` wants what `keys` leaves.
for (const name of Object.keys(MEASUREMENTS).filter((name) => names.includes(name))) {
  const start = performance.now()
  const result = await MEASUREMENTS[name](context)
  await write(values.out, name, result)
  print(`${name} (${Math.round((performance.now() - start) / 1000)} s)`, result.rows)
}
if (values.data === undefined) removeDirectory(data)
