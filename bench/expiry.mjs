// node bench/expiry.mjs [--keys N]
// Keys that expire together, with a stream of changes and an observer: how long the server leaves other requests waiting meanwhile, which
// is about its longest turn of the event loop, and how late the last expiry is told.
import { Agent, request } from 'node:http'
import { parseArgs } from 'node:util'
import { countChanges } from './changes/count.mjs'
import { makeDirectory, removeDirectory, start, stop } from './process.mjs'

const { values } = parseArgs({ options: { keys: { type: 'string', default: '100000' } } })
const count = Number(values.keys)
const KEYS_AT_A_TIME = 1000
const REST_MS = 1500

const directory = makeDirectory()
const server = await start(['dist/cli.js', 'serve', '--port', '0', '--data', directory, '--durability', 'async'])
const { url } = server
const call = async (method, path, body) => {
  const headers = { 'content-type': 'application/json' }
  const answer = await fetch(`${url}${path}`, { method, headers, body: body && JSON.stringify(body) })
  if (!answer.ok) throw new Error(`${method} ${path}: ${await answer.text()}`)
  return answer.json()
}
const rest = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

/** Asks for a key again and again: the longest answer since the last reading. */
let longestMs = 0
let isOver = false
const agent = new Agent({ keepAlive: true, maxSockets: 1 })
function ask() {
  const begin = performance.now()
  request(`${url}/v1/kv/probe`, { agent }, (answer) => {
    answer.resume().on('end', () => {
      longestMs = Math.max(longestMs, performance.now() - begin)
      if (!isOver) setTimeout(ask, 0)
    })
  }).end()
}
function takeLongest() {
  const taken = longestMs
  longestMs = 0
  return taken
}

await call('PUT', '/v1/observers/told', { prefix: 'k/' })
const expiresMs = Date.now() + 4000 + count / 10
const at = expiresMs * 2048
for (let from = 0; from < count; from += KEYS_AT_A_TIME) {
  const size = Math.min(KEYS_AT_A_TIME, count - from)
  const ops = Array.from({ length: size }, (_, i) => ({
    op: 'put',
    key: `k/${from + i}`,
    value: 'value',
    expire_ts: at,
  }))
  await call('POST', '/v1/txn', { ops })
}
const restMs = expiresMs - Date.now() - REST_MS
if (restMs < 0) throw new Error('the keys were written too slowly')
let opened = () => {}
const isOpen = new Promise((resolve) => (opened = resolve))
const following = countChanges(url, '/v1/changes?prefix=k/', { until: count, opened })
await isOpen
ask()
await rest(restMs)
takeLongest()
await rest(REST_MS - 200)
const idle = takeLongest()
await following
const fedMs = Date.now() - expiresMs
const fed = takeLongest()
// Marked cells stay pending, so their kinds are what changes.
const claims = async () => {
  const claim = { worker: 'w', limit: 1000, lease_ms: 600_000 }
  return (await call('POST', '/v1/observers/told/claim', claim)).notifications
}
for (let claimed = 0; claimed < count; ) claimed += (await claims()).length
const claimed = takeLongest()
isOver = true
const print = (what, ms) => console.log(`${what.padEnd(58)} ${ms.toFixed(1).padStart(8)} ms`)
print('longest answer while nothing expires', idle)
print(`longest answer until the stream has ${count} expiries`, fed)
print('the stream has the last of them after', fedMs)
print('longest answer while a worker claims them', claimed)
await stop(server)
agent.destroy()
removeDirectory(directory)
