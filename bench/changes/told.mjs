// From a PUT to the event on a stream, at a steady rate.
import { percentile, row } from '../observers/goals.mjs'
import { atRate } from '../observers/rate.mjs'
import { keyOf, valueAt } from '../ratios/payload.mjs'
import { put } from '../ratios/request.mjs'
import { withPerkv } from '../scale/servers.mjs'
import { Streams } from './streams.mjs'

const WARM_UP_S = 2

export async function told({ rate, seconds }) {
  const [toEvent, toAnswer] = await withPerkv(({ url }) => measure(url, rate, seconds))
  const name = `${rate} PUT/s`
  return {
    settings: { rate, seconds },
    rows: [
      row(`PUT to event, ${name}, p50`, percentile(toEvent, 0.5), { unit: 'ms', goal: 5, floor: 50, isAtMost: true }),
      row(`PUT to event, ${name}, p99`, percentile(toEvent, 0.99), {
        unit: 'ms',
        goal: 30,
        floor: 300,
        isAtMost: true,
      }),
      row(`PUT to event, ${name}, longest`, percentile(toEvent, 1), { unit: 'ms' }),
      row(`PUT to answer, ${name}, p50`, percentile(toAnswer, 0.5), { unit: 'ms' }),
      row(`PUT to answer, ${name}, p99`, percentile(toAnswer, 0.99), { unit: 'ms' }),
    ],
  }
}

async function measure(url, rate, seconds) {
  const streams = await Streams.open(url, ['/v1/changes?prefix=key'])
  /** By key: from when it was due. */
  const sent = new Map()
  const toAnswer = []
  await atRate(url, rate, WARM_UP_S + seconds, async (connection, n, dueAt) => {
    sent.set(keyOf(n), performance.timeOrigin + dueAt)
    await connection.json(put(`/v1/kv/${keyOf(n)}`, valueAt(n)))
    if (n >= rate * WARM_UP_S) toAnswer.push(performance.now() - dueAt)
  })
  const events = await streams.events(sent.size)
  await streams.close()
  const toEvent = events.slice(rate * WARM_UP_S).map(({ key, at }) => at - sent.get(key))
  return [toEvent, toAnswer]
}
