// Servers of PerKV on LevelDB, and what is put into them before they are measured.
import { Connection } from './connection.mjs'
import { load } from './load.mjs'
import { keyOf, valueAt } from './payload.mjs'
import { cleanedUp, makeDirectory, start, stop } from './process.mjs'
import { get, postJson, putAll } from './requests.mjs'

/** @returns the process, and `call(request)`: the JSON of an answer, over a connection that stays open. */
export async function startServer(args) {
  const server = await start(args)
  let connection
  const call = async (request) => {
    if (!connection?.isOpen) connection = await Connection.open(server.url)
    return connection.call(request)
  }
  return { ...server, call }
}

/** On a machine that is busy with others a server would refuse work: `overload` alone measures that. */
export const NEVER_BUSY = ['--loop-delay-ms-max', '0']

export const startPerkv = async (data, ...flags) => ({
  ...(await startServer(['dist/cli.js', 'serve', '--port', '0', '--data', data, ...NEVER_BUSY, ...flags])),
  data,
})

/** Runs `use` with a PerKV on the directory, and stops it properly: another one can go on with the data. */
export async function withPerkvOn(data, flags, use) {
  const server = await startPerkv(data, ...flags)
  try {
    return await use(server)
  } finally {
    await stop(server)
  }
}

/** Runs `use` with a PerKV of its own, empty; nothing of it is left afterwards, nor of what `use` has started. */
export const withPerkv = (flags, use) => cleanedUp(async () => use(await startPerkv(makeDirectory(), ...flags)))

export const timestamp = async (server) => (await server.call(postJson('/v1/percolator/tso', {}))).ts

/** One figure of `/metrics`, without labels or with any. */
export async function metric({ url }, name) {
  const text = await (await fetch(`${url}/metrics`)).text()
  return Number(new RegExp(`^${name}(?:\\{.*\\})? (\\d+)`, 'm').exec(text)[1])
}

export const statusOf = (server) => server.call(get('/v1/status'))

export const PUTS_PER_TXN = 1000
const TXNS_AT_ONCE = 4

/** Puts keys `from` to below `to`, in order. @returns keys a second. */
export async function fill({ url }, from, to, named = keyOf) {
  const size = Math.min(PUTS_PER_TXN, to - from)
  const { elapsed } = await load({
    ...{ url, connections: TXNS_AT_ONCE, count: Math.ceil((to - from) / size) },
    request(n) {
      const first = from + n * size
      return putAll(pairsOf(first, Math.min(to, first + size), named))
    },
  })
  return (to - from) / elapsed
}

/** Writes every key below `count` again and again. Neighbouring transactions have different keys, so that none waits for another. */
export async function fillVersions({ url }, count, versions, named = keyOf) {
  const size = Math.min(PUTS_PER_TXN, Math.ceil(count / (2 * TXNS_AT_ONCE)))
  const parts = Math.ceil(count / size)
  await load({
    ...{ url, connections: TXNS_AT_ONCE, count: parts * versions },
    request(n) {
      const first = (n % parts) * size
      return putAll(pairsOf(first, Math.min(count, first + size), named, n * size))
    },
  })
}

const pairsOf = (from, to, named, value = from) =>
  Array.from({ length: to - from }, (_, i) => ({ key: named(from + i), value: valueAt(value + i) }))
