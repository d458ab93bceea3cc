// From a PUT to the event on a stream, at a steady rate.
import { atRate } from '../../harness/load.mjs'
import { keyOf, valueAt } from '../../harness/payload.mjs'
import { withPerkv } from '../../harness/perkv.mjs'
import { latencyRows } from '../../harness/report.mjs'
import { put } from '../../harness/requests.mjs'
import { clockAt, Streams } from './streams.mjs'

const WARM_UP_S = 2

export const told = {
  full: { rate: 2000, seconds: 15 },
  quick: { rate: 1000, seconds: 2 },
  async run({ rate, seconds }) {
    const [toEvent, toAnswer] = await withPerkv([], ({ url }) => measure(url, rate, seconds))
    const bounds = { p50: { goal: 5, floor: 50 }, p99: { goal: 30, floor: 300 } }
    return [
      ...latencyRows(`PUT to event, ${rate} PUT/s`, toEvent, { ...bounds, longest: {} }),
      ...latencyRows(`PUT to answer, ${rate} PUT/s`, toAnswer, bounds),
    ]
  },
}

async function measure(url, rate, seconds) {
  const streams = await Streams.open(url, ['/v1/changes?prefix=key'])
  /** By key: when it was due. */
  const due = new Map()
  const toAnswer = []
  await atRate(url, rate, WARM_UP_S + seconds, async (connection, n, dueAt) => {
    due.set(keyOf(n), clockAt(dueAt))
    await connection.call(put(`/v1/kv/${keyOf(n)}`, valueAt(n)))
    if (n >= rate * WARM_UP_S) toAnswer.push(performance.now() - dueAt)
  })
  const events = await streams.events(due.size)
  await streams.close()
  return [events.slice(rate * WARM_UP_S).map(({ key, at }) => at - due.get(key)), toAnswer]
}
