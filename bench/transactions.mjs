// npm run bench:txn [-- --rounds N --seconds N --writers N]
// Interactive transactions that read two keys and write them back, over HTTP: commits a second, p99 with retries, and tries
// a commit; optimistic and pessimistic alternated, from no contention to one hot row.
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { callerOf } from './http-call.mjs'
import { median, start, stop } from './process.mjs'

const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '5' },
    seconds: { type: 'string', default: '4' },
    writers: { type: 'string', default: '64' },
  },
})
const rounds = Number(values.rounds)
const seconds = Number(values.seconds)
const writers = Number(values.writers)

const data = await mkdtemp(join(tmpdir(), 'perkv-bench-'))
const server = await start(['dist/cli.js', 'serve', '--port', '0', '--data', data])
const call = callerOf(server, writers)

/** One try. @returns whether it committed. */
async function increment(mode, keys) {
  const [, begun] = await call('POST', '/v1/txn/begin', JSON.stringify({ mode }))
  const { txn } = JSON.parse(begun)
  const forUpdate = mode === 'pessimistic' ? '?for_update=true&lock_wait_ms=60000' : ''
  for (const key of keys) {
    const [status, value] = await call('GET', `/v1/txn/${txn}/kv/${key}${forUpdate}`)
    if (status !== 200 && status !== 404) return giveUp(txn, status, value)
    const counter = status === 200 ? Number(value) + 1 : 1
    const [written, problem] = await call('PUT', `/v1/txn/${txn}/kv/${key}`, String(counter))
    if (written !== 200) return giveUp(txn, written, problem)
  }
  const [status, problem] = await call('POST', `/v1/txn/${txn}/commit`)
  if (status !== 200 && status !== 409) throw new Error(`${status}: ${problem}`)
  return status === 200
}

async function giveUp(txn, status, problem) {
  if (status !== 409 && status !== 423) throw new Error(`${status}: ${problem}`)
  await call('POST', `/v1/txn/${txn}/rollback`)
  return false
}

async function run(mode, keysOf, duration) {
  const latencies = []
  let tries = 0
  const end = performance.now() + duration * 1000
  const writer = async () => {
    while (performance.now() < end) {
      const keys = keysOf()
      const start = performance.now()
      do tries++
      while (!(await increment(mode, keys)) && performance.now() < end + 10_000)
      latencies.push(performance.now() - start)
    }
  }
  await Promise.all(Array.from({ length: writers }, writer))
  latencies.sort((a, b) => a - b)
  return {
    rate: latencies.length / duration,
    p50: latencies[Math.floor(latencies.length * 0.5)],
    p99: latencies[Math.floor(latencies.length * 0.99)],
    tries: tries / latencies.length,
  }
}

const random = (n) => Math.floor(Math.random() * n)
let next = 0
const works = {
  'low: 2 of 100 000 keys': () => [`low${random(100_000)}`, `low${random(100_000)}`],
  // In one order: otherwise deadlocks are what is measured.
  'high: 2 of 20 keys': () => {
    const first = random(20)
    const second = (first + 1 + random(19)) % 20
    return [Math.min(first, second), Math.max(first, second)].map((n) => `high${n}`)
  },
  'one hot row, and one of its own': () => ['hot', `own${next++}`],
}
const modes = ['optimistic', 'pessimistic']

try {
  console.log(`${writers} writers, ${rounds} rounds of ${seconds} s each, alternated; medians; 6 requests a try`)
  console.log(`${'contention'.padEnd(34)}${'mode'.padEnd(12)}    commits/s   p50 ms   p99 ms   tries a commit`)
  for (const [name, keysOf] of Object.entries(works)) {
    const results = Object.fromEntries(modes.map((mode) => [mode, []]))
    for (const mode of modes) await run(mode, keysOf, 1) // Warm.
    for (let round = 0; round < rounds; round++)
      for (const mode of round % 2 === 0 ? modes : modes.toReversed())
        results[mode].push(await run(mode, keysOf, seconds))
    for (const mode of modes) {
      const show = (field, digits) => median(results[mode].map((result) => result[field])).toFixed(digits)
      console.log(
        `${name.padEnd(34)}${mode.padEnd(12)}${show('rate', 0).padStart(13)}${show('p50', 1).padStart(9)}${show('p99', 1).padStart(9)}${show('tries', 2).padStart(17)}`,
      )
    }
  }
} finally {
  await stop(server)
  await rm(data, { recursive: true, force: true })
}
