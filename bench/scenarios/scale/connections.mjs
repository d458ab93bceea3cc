// Throughput and latencies by the number of connections.
import { load } from '../../harness/load.mjs'
import { median } from '../../harness/numbers.mjs'
import { keyOf } from '../../harness/payload.mjs'
import { fill, withPerkv } from '../../harness/perkv.mjs'
import { freshPut, get } from '../../harness/requests.mjs'
import { inTurn } from '../../harness/rounds.mjs'

const REQUESTS = {
  GET: () => get(`/v1/kv/${keyOf(0)}`),
  PUT: freshPut,
}

export const connections = {
  full: { counts: [1, 4, 16, 64, 128, 256], rounds: 3, seconds: 1.5 },
  quick: { counts: [1, 64], rounds: 1, seconds: 0.5 },
  run: ({ counts, ...turns }) =>
    withPerkv([], async (server) => {
      await fill(server, 0, 1)
      const contender = (kind, count) => (seconds) =>
        load({ url: server.url, connections: count, seconds, request: REQUESTS[kind] })
      const results = {}
      for (const kind of Object.keys(REQUESTS))
        results[kind] = await inTurn(Object.fromEntries(counts.map((count) => [count, contender(kind, count)])), turns)
      const typical = (kind, count, field) => median(results[kind][count].map((result) => result[field]))
      return counts.map((count) => ({
        connections: count,
        ...Object.fromEntries(
          Object.keys(REQUESTS).flatMap((kind) => [
            [`${kind}/s`, typical(kind, count, 'rate')],
            [`${kind} p50, ms`, typical(kind, count, 'p50')],
            [`${kind} p99, ms`, typical(kind, count, 'p99')],
          ]),
        ),
      }))
    }),
  tell: ({ settings: { rounds, seconds }, blocks }) => [
    '### Connections',
    `A hot key is read, and new keys are written; medians of ${rounds} rounds of ${seconds} s.`,
    ...blocks,
  ],
}
