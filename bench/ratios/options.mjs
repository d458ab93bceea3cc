// What the command line says, with what it leaves open filled in.
import { parseArgs } from 'node:util'
import { isInstalled } from '../process.mjs'
import { works } from './works.mjs'

/** The cache of `get_uniform` holds 4 % of its keys. --quick, with less data, is for finding what got slower. */
const FULL = {
  rounds: 5,
  seconds: 4,
  warmSeconds: 1,
  sizes: {
    keys: 1_000_000,
    cacheBytes: 16 << 20,
    scannedPairs: 100_000,
    versions: 1000,
    versionedKeys: 1000,
  },
}
const QUICK = {
  rounds: 3,
  seconds: 0.5,
  warmSeconds: 0.5,
  sizes: {
    keys: 100_000,
    cacheBytes: 1_600_000,
    scannedPairs: 100_000,
    versions: 1000,
    versionedKeys: 50,
  },
}

const GENERATORS = ['wrk', 'autocannon']

export function optionsOf(args) {
  const { values } = parseArgs({
    args,
    options: {
      rounds: { type: 'string' },
      seconds: { type: 'string' },
      connections: { type: 'string', default: '64' },
      only: { type: 'string' },
      generator: { type: 'string', default: isInstalled('wrk') ? 'wrk' : 'autocannon' },
      json: { type: 'string' },
      svg: { type: 'string' },
      markdown: { type: 'string' },
      quick: { type: 'boolean', default: false },
    },
  })
  if (!GENERATORS.includes(values.generator)) throw new Error(`--generator has to be one of ${GENERATORS.join(', ')}`)
  const base = values.quick ? QUICK : FULL
  return {
    ...base,
    ...values,
    rounds: positive('rounds', values.rounds ?? base.rounds),
    seconds: positive('seconds', values.seconds ?? base.seconds),
    connections: positive('connections', values.connections),
    chosen: values.only === undefined ? works : chosenOf(values.only.split(',')),
  }
}

function positive(name, text) {
  const number = Number(text)
  if (!(number > 0) || !Number.isFinite(number)) throw new Error(`--${name} has to be a number above 0`)
  return number
}

function chosenOf(names) {
  const unknown = names.find((name) => works.every((work) => work.name !== name))
  if (unknown !== undefined) throw new Error(`no work "${unknown}": ${works.map(({ name }) => name).join(', ')}`)
  return works.filter(({ name }) => names.includes(name))
}
