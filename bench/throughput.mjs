// npm run bench [-- --rounds N --seconds N --connections N]
// Requests a second of PerKV beside a bare fastify route, alternated; medians and their ratio.
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import autocannon from 'autocannon'
import { median, start, stop } from './process.mjs'

const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '5' },
    seconds: { type: 'string', default: '4' },
    connections: { type: 'string', default: '64' },
  },
})
const rounds = Number(values.rounds)
const duration = Number(values.seconds)
const connections = Number(values.connections)
const value = Buffer.alloc(100, 'v')

async function run(options) {
  const result = await autocannon({ connections, duration, ...options })
  const failed = result.errors + result.timeouts + result.non2xx
  if (failed > 0) throw new Error(`${failed} requests to ${options.url} failed`)
  return { rate: result.requests.average, p99: result.latency.p99 }
}

const data = await mkdtemp(join(tmpdir(), 'perkv-bench-'))
const bare = await start(['bench/bare.mjs'])
const perkv = await start(['dist/cli.js', 'serve', '--port', '0', '--data', data])
await fetch(`${perkv.url}/v1/kv/hot`, { method: 'PUT', body: value })

/** A key that no request used before. */
let next = 0
const fresh = () => `key${String(next++).padStart(10, '0')}`
const json = { 'content-type': 'application/json' }
const text = value.toString()
const twoPuts = () => ({ op: 'put', key: fresh(), value: text })
const txnBody = () => JSON.stringify({ ops: [twoPuts(), twoPuts()] })

/** `request`: each request of the load gets a path and a body of its own. */
const varied = (method, pathOf, bodyOf, headers) => [
  { method, headers, setupRequest: (request) => ({ ...request, path: pathOf(), body: bodyOf() }) },
]

const works = [
  {
    name: 'GET of a hot key',
    bare: { url: `${bare.url}/get` },
    perkv: { url: `${perkv.url}/v1/kv/hot` },
  },
  {
    name: 'durable PUT, distinct keys',
    bare: {
      url: bare.url,
      requests: varied(
        'PUT',
        () => '/put',
        () => value,
      ),
    },
    perkv: {
      url: perkv.url,
      requests: varied(
        'PUT',
        () => `/v1/kv/${fresh()}`,
        () => value,
      ),
    },
  },
  {
    name: 'POST /v1/txn, two puts',
    bare: { url: bare.url, requests: varied('POST', () => '/txn', txnBody, json) },
    perkv: { url: perkv.url, requests: varied('POST', () => '/v1/txn', txnBody, json) },
  },
]

try {
  console.log(`${connections} connections, ${rounds} rounds of ${duration} s each, alternated; 100-byte values`)
  console.log(`${'work'.padEnd(28)}${'bare/s'.padStart(10)}${'PerKV/s'.padStart(10)}${'ratio'.padStart(8)}   spread`)
  for (const { name, ...contenders } of works) {
    await run({ ...contenders.perkv, duration: 1 }) // Warm.
    await run({ ...contenders.bare, duration: 1 })
    const results = []
    for (let round = 0; round < rounds; round++)
      results.push({ bare: await run(contenders.bare), perkv: await run(contenders.perkv) })
    const ratios = results.map((result) => result.perkv.rate / result.bare.rate)
    console.log(
      name.padEnd(28) +
        Math.round(median(results.map((result) => result.bare.rate)))
          .toString()
          .padStart(10) +
        Math.round(median(results.map((result) => result.perkv.rate)))
          .toString()
          .padStart(10) +
        median(ratios).toFixed(2).padStart(8) +
        `   ${Math.min(...ratios).toFixed(2)} to ${Math.max(...ratios).toFixed(2)}, p99 ${median(results.map((result) => result.perkv.p99))} ms`,
    )
  }
} finally {
  for (const server of [bare, perkv]) await stop(server)
  await rm(data, { recursive: true, force: true })
}
