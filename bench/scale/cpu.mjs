// Processor time of the server a request, beside a bare server that answers the same bytes. Linux only.
import { median, stop } from '../process.mjs'
import { value } from './data.mjs'
import { fill } from './fill.mjs'
import { load } from './load.mjs'
import { cpuMicros } from './proc.mjs'
import { each, getUniform, putFresh, txnFresh } from './requests.mjs'
import { startBare, withPerkv } from './servers.mjs'

const CONNECTIONS = 64
const HOT = '/v1/kv/hot'
const BIG_BYTES = 10_000

const kinds = (keys) => [
  { name: 'GET hot', make: () => ({ method: 'GET', path: HOT }) },
  { name: 'GET uniform', make: () => getUniform(keys) },
  { name: 'PUT 100 B', make: () => putFresh() },
  { name: 'PUT 10 KB', make: () => putFresh(BIG_BYTES) },
  { name: 'txn, check and two puts', make: () => txnFresh(keys) },
]

export function cpu({ cpuKeys: keys, requests, rounds }) {
  return withPerkv(async (perkv) => {
    const bare = await startBare()
    try {
      await fill(perkv, 0, keys)
      await fetch(perkv.url + HOT, { method: 'PUT', body: value() })
      const rows = []
      for (const kind of kinds(keys)) rows.push(await compare(kind, { perkv, bare, requests, rounds }))
      return { settings: { keys, connections: CONNECTIONS, requests, rounds }, rows }
    } finally {
      await stop(bare)
    }
  })
}

/** Alternated, after a warm-up of the same length. */
async function compare({ name, make }, { perkv, bare, requests, rounds }) {
  const results = []
  for (let round = 0; round <= rounds; round++) {
    const result = {
      perkv: await cost(perkv, each(make), requests),
      bare: await cost(bare, each(make), requests),
    }
    if (round > 0) results.push(result)
  }
  const of = (server, threads) => median(results.map((result) => result[server][threads]))
  const all = results.map((result) => result.perkv.all)
  return {
    request: name,
    perkv_us: of('perkv', 'all'),
    perkv_us_min: Math.min(...all),
    perkv_us_max: Math.max(...all),
    perkv_main_us: of('perkv', 'main'),
    bare_us: of('bare', 'all'),
    bare_main_us: of('bare', 'main'),
    ratio: of('perkv', 'all') / of('bare', 'all'),
    ratio_main: of('perkv', 'main') / of('bare', 'main'),
  }
}

async function cost(server, requests, amount) {
  const before = cpuMicros(server)
  await load({ server, requests, amount, connections: CONNECTIONS })
  const after = cpuMicros(server)
  return { all: (after.all - before.all) / amount, main: (after.main - before.main) / amount }
}
