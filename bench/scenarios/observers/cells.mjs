// Observers and their marked keys, and workers that run them.
import { setTimeout as sleep } from 'node:timers/promises'
import { numbered } from '../../harness/payload.mjs'
import { fill, withPerkv } from '../../harness/perkv.mjs'
import { startWorker } from '../../harness/process.mjs'
import { get, postJson, putJson, remove } from '../../harness/requests.mjs'

const POLL_MS = 10
export const LONG_LEASE_MS = 3_600_000

export const register = (server, name, prefix) => server.call(putJson(`/v1/observers/${name}`, { prefix }))
export const unregister = (server, name) => server.call(remove(`/v1/observers/${name}`))

/** Puts keys `from` to below `to`. */
export const putCells = (server, prefix, from, to) => fill(server, from, to, (n) => numbered(prefix, n))

/** @returns notifications of so many cells, claimed for an hour. */
export async function claimAll(server, name, count) {
  const claimed = []
  while (claimed.length < count) {
    const limit = Math.min(1000, count - claimed.length)
    const body = { worker: 'bench', limit, lease_ms: LONG_LEASE_MS, wait_ms: 10_000 }
    const { notifications } = await server.call(postJson(`/v1/observers/${name}/claim`, body))
    if (notifications.length === 0) throw new Error(`${name} has ${claimed.length} cells, not ${count}`)
    claimed.push(...notifications)
  }
  return claimed
}

/** Until nothing is left to run. */
export async function drained(server, names) {
  for (;;) {
    const { observers } = await server.call(get('/v1/observers'))
    const ours = observers.filter(({ name }) => names.includes(name))
    const parked = ours.find((state) => state.parked > 0)
    if (parked !== undefined) throw new Error(`${parked.name} has parked ${parked.parked} cells`)
    if (ours.length === names.length && ours.every(({ pending }) => pending === 0)) return
    await sleep(POLL_MS)
  }
}

/** Runs `use` with a PerKV and a process that works for its observers. */
export const withWorker = (use) =>
  withPerkv([], (server) => use(server, startWorker('bench/scenarios/observers/worker.mjs', server.url)))
