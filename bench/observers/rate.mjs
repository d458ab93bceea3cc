// Work at a steady rate, whether or not the earlier work is done: what has to wait counts from when it was due.
import { setTimeout as sleep } from 'node:timers/promises'
import { withConnections } from './connection.mjs'

const CONNECTIONS = 64

/** @param work of a connection, the number of the piece, and when it was due. */
export async function atRate(url, rate, seconds, work) {
  const count = rate * seconds
  const since = performance.now()
  let next = 0
  await withConnections(url, Math.min(CONNECTIONS, count), (connections) =>
    Promise.all(
      connections.map(async (connection) => {
        while (next < count) {
          const n = next++
          const dueAt = since + (n * 1000) / rate
          const early = dueAt - performance.now()
          if (early > 0) await sleep(early)
          await work(connection, n, dueAt)
        }
      }),
    ),
  )
}
