import { key, value } from './data.mjs'
import { post } from './post.mjs'

const PUTS_A_REQUEST = 1000
const IN_FLIGHT = 4

/** Puts keys `from` to below `to`, in order. @returns keys a second. */
export async function fill(server, from, to) {
  const start = performance.now()
  let next = from
  const lane = async () => {
    while (next < to) {
      const first = next
      next = Math.min(to, next + PUTS_A_REQUEST)
      await putAll(server, first, next)
    }
  }
  await Promise.all(Array.from({ length: IN_FLIGHT }, lane))
  return ((to - from) / (performance.now() - start)) * 1000
}

/** Every key below `keys`, `versions` times; each lane has keys of its own, so that none waits for another. */
export async function fillVersions(server, keys, versions) {
  const start = performance.now()
  const lane = async (from, to) => {
    for (let version = 0; version < versions; version++)
      for (let first = from; first < to; first += PUTS_A_REQUEST)
        await putAll(server, first, Math.min(to, first + PUTS_A_REQUEST))
  }
  const bound = (i) => Math.floor((keys * i) / IN_FLIGHT)
  await Promise.all(Array.from({ length: IN_FLIGHT }, (_, i) => lane(bound(i), bound(i + 1))))
  return ((keys * versions) / (performance.now() - start)) * 1000
}

function putAll(server, from, to) {
  const ops = Array.from({ length: to - from }, (_, i) => ({ op: 'put', key: key(from + i), value: value() }))
  return post(server, '/v1/txn', { ops })
}
