// One change that all of many streams are told of, and how long others wait meanwhile.
import { setTimeout as sleep } from 'node:timers/promises'
import { Connection } from '../observers/connection.mjs'
import { percentile, row } from '../observers/goals.mjs'
import { median } from '../process.mjs'
import { valueAt } from '../ratios/payload.mjs'
import { get, put } from '../ratios/request.mjs'
import { withPerkv } from '../scale/servers.mjs'
import { now, Streams } from './streams.mjs'

const REST_MS = 1000
const KINDS = { feed: '/v1/changes?key=hot&heartbeat_ms=60000', watch: '/v1/kv/hot' }

export async function everybody({ count, rounds }) {
  const rows = []
  for (const [kind, path] of Object.entries(KINDS)) {
    const all = await withPerkv(({ url }) => measure(url, path, count, rounds))
    const name = `1 change to ${count} streams of the ${kind}`
    const of = (field) => median(all.map((one) => one[field]))
    const longest = percentile(
      all.map(({ delay }) => delay),
      1,
    )
    rows.push(
      row(`${name}, all told`, of('last') / 1000, { unit: 's', goal: 1.5, floor: 10, isAtMost: true }),
      row(`${name}, half told`, of('half') / 1000, { unit: 's' }),
      row(`${name}, GET meanwhile, longest`, longest, { unit: 'ms', goal: 50, floor: 500, isAtMost: true }),
    )
  }
  return { settings: { count, rounds }, rows }
}

async function measure(url, path, count, rounds) {
  const [writer, other] = await Promise.all([Connection.open(url), Connection.open(url)])
  await writer.json(put('/v1/kv/hot', valueAt(0)))
  await writer.json(put('/v1/kv/other', valueAt(0)))
  const streams = await Streams.open(url, Array(count).fill(path))
  const measured = []
  for (let round = 1; round <= rounds; round++) {
    await sleep(REST_MS)
    const since = now()
    const events = streams.events(count)
    let isOver = false
    events
      .finally(() => {
        isOver = true
      })
      .catch(() => {})
    await writer.json(put('/v1/kv/hot', valueAt(round)))
    let delay = 0
    while (!isOver) {
      const begin = performance.now()
      await other.ask(get('/v1/kv/other'))
      delay = Math.max(delay, performance.now() - begin)
    }
    const times = (await events).map(({ at }) => at - since)
    measured.push({ last: percentile(times, 1), half: percentile(times, 0.5), delay })
  }
  writer.close()
  other.close()
  await streams.close()
  return measured
}
