// Observers and their marked keys, made over HTTP.
import { setTimeout as sleep } from 'node:timers/promises'
import { valueAt } from '../ratios/payload.mjs'
import { get, postJson, putJson } from '../ratios/request.mjs'
import { withConnections } from './connection.mjs'

const PUTS_PER_TXN = 1000
const TXNS_AT_ONCE = 4
const POLL_MS = 10
export const LONG_LEASE_MS = 3_600_000

export const cellKey = (prefix, n) => `${prefix}${String(n).padStart(10, '0')}`

/** One request. @returns its answer. */
export const one = (url, request) => withConnections(url, 1, ([connection]) => connection.json(request))

export const register = (url, name, prefix, options = {}) =>
  one(url, putJson(`/v1/observers/${name}`, { prefix, ...options }))
export const remove = (url, name) => one(url, { method: 'DELETE', path: `/v1/observers/${name}` })

/** Puts keys `from` to below `to`. */
export async function putCells(url, prefix, from, to) {
  let next = from
  await withConnections(url, TXNS_AT_ONCE, (connections) =>
    Promise.all(
      connections.map(async (connection) => {
        while (next < to) {
          const numbers = Array.from({ length: Math.min(PUTS_PER_TXN, to - next) }, (_, i) => next + i)
          next += numbers.length
          const ops = numbers.map((n) => ({ op: 'put', key: cellKey(prefix, n), value: valueAt(n) }))
          await connection.json(postJson('/v1/txn', { ops }))
        }
      }),
    ),
  )
}

/** @returns notifications of so many cells, claimed for an hour. */
export async function claimAll(url, name, count) {
  const claimed = []
  await withConnections(url, 1, async ([connection]) => {
    while (claimed.length < count) {
      const body = {
        worker: 'bench',
        limit: Math.min(1000, count - claimed.length),
        lease_ms: LONG_LEASE_MS,
        wait_ms: 10_000,
      }
      const { notifications } = await connection.json(postJson(`/v1/observers/${name}/claim`, body))
      if (notifications.length === 0) throw new Error(`${name} has ${claimed.length} cells, not ${count}`)
      claimed.push(...notifications)
    }
  })
  return claimed
}

/** Until nothing is left to run. */
export async function drained(url, names) {
  await withConnections(url, 1, async ([connection]) => {
    for (;;) {
      const { observers } = await connection.json(get('/v1/observers'))
      const ours = observers.filter(({ name }) => names.includes(name))
      const parked = ours.find((state) => state.parked > 0)
      if (parked !== undefined) throw new Error(`${parked.name} has parked ${parked.parked} cells`)
      if (ours.length === names.length && ours.every(({ pending }) => pending === 0)) return
      await sleep(POLL_MS)
    }
  })
}
