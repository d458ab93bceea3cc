// One change that all of many streams are told of, and how long others wait meanwhile.
import { setTimeout as sleep } from 'node:timers/promises'
import { median } from '../../harness/numbers.mjs'
import { valueAt } from '../../harness/payload.mjs'
import { withPerkv } from '../../harness/perkv.mjs'
import { Probe } from '../../harness/probe.mjs'
import { row } from '../../harness/report.mjs'
import { put } from '../../harness/requests.mjs'
import { clockAt, Streams } from './streams.mjs'

const REST_MS = 1000
const KINDS = { streams: '/v1/changes?key=hot&heartbeat_ms=60000', 'watchers of one key': '/v1/kv/hot' }

export const everybody = {
  full: { count: 10_000, rounds: 5 },
  quick: { count: 1000, rounds: 1 },
  async run({ count, rounds }) {
    const rows = []
    for (const [kind, path] of Object.entries(KINDS)) {
      const all = await withPerkv([], (server) => measure(server, path, count, rounds))
      const last = median(all.map((one) => one.last)) / 1000
      const longest = Math.max(...all.map((one) => one.longest))
      const name = `one change to ${count} ${kind}`
      rows.push(
        row(`${name}, all told`, last, { unit: 's', goal: 1.5, floor: 10, isAtMost: true }),
        row(`${name}, longest GET meanwhile`, longest, { unit: 'ms', goal: 50, floor: 500, isAtMost: true }),
      )
    }
    return rows
  },
}

async function measure(server, path, count, rounds) {
  const write = (n) => server.call(put('/v1/kv/hot', valueAt(n)))
  await write(0)
  const streams = await Streams.open(server.url, Array(count).fill(path))
  const probe = await Probe.of(server)
  const measured = []
  for (let round = 1; round <= rounds; round++) {
    await sleep(REST_MS)
    const since = clockAt()
    const events = streams.events(count)
    probe.take()
    await write(round)
    const last = Math.max(...(await events).map(({ at }) => at - since))
    measured.push({ last, longest: probe.take() })
  }
  probe.close()
  await streams.close()
  return measured
}
