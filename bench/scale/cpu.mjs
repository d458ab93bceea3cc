// Processor time of the server a request, beside a bare server that answers the same bytes. Linux only.
import { median } from '../process.mjs'
import { value } from './data.mjs'
import { fill } from './fill.mjs'
import { load } from './load.mjs'
import { cpuMicros } from './proc.mjs'
import { each, getUniform, putFresh, txnFresh } from './requests.mjs'
import { startBare, stopServer, withPerkv } from './servers.mjs'

const CONNECTIONS = 64
const HOT = '/v1/kv/hot'
const BIG_BYTES = 10_000

/** `bare`: the path that answers the same there; method, headers and body stay. */
const kinds = (keys) => [
  { name: 'GET hot', bare: '/get', make: () => ({ method: 'GET', path: HOT }) },
  { name: 'GET uniform', bare: '/get', make: () => getUniform(keys) },
  { name: 'PUT 100 B', bare: '/put', make: () => putFresh() },
  { name: 'PUT 10 KB', bare: '/put', make: () => putFresh(BIG_BYTES) },
  { name: 'txn, check and two puts', bare: '/txn', make: () => txnFresh(keys) },
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
      await stopServer(bare)
    }
  })
}

/** Alternated, after a warm-up of the same length. */
async function compare({ name, bare: path, make }, { perkv, bare, requests, rounds }) {
  const results = []
  for (let round = 0; round <= rounds; round++) {
    const result = {
      perkv: await cost(perkv, each(make), requests),
      bare: await cost(
        bare,
        each(() => ({ ...make(), path })),
        requests,
      ),
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
