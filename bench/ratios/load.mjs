// What autocannon cannot do: operations of several requests, a number of them, and those in flight at the end counted.
// Keep-alive connections, each with one request in flight, on bare sockets.
//
// An operation is a generator function: it yields requests, gets the body of each answer back, and is done when it
// returns. What is counted are operations.
import { once } from 'node:events'
import { connect } from 'node:net'
import { bytesOf } from './request.mjs'

const TIMEOUT_MS = 30_000
const EMPTY = Buffer.alloc(0)

/**
 * Runs operations for some seconds, or a number of them; those in flight at the end are waited for, and count.
 * @returns operations per second, how many there were, and the latency in ms that 99 % of them kept.
 * @throws when any request fails.
 */
export async function load({
  url,
  connections,
  operation,
  seconds = Number.POSITIVE_INFINITY,
  count = Number.POSITIVE_INFINITY,
}) {
  const { hostname, port } = new URL(url)
  const sockets = Array.from({ length: connections }, () => connect({ host: hostname, port, noDelay: true }))
  try {
    await Promise.all(sockets.map((socket) => once(socket, 'connect')))
    const latencies = []
    const begin = performance.now()
    const end = begin + seconds * 1000
    let started = 0
    const next = () => (started < count && performance.now() < end ? operation(started++) : undefined)
    await Promise.all(sockets.map((socket) => drive(socket, next, (latency) => latencies.push(latency))))
    const elapsed = (performance.now() - begin) / 1000
    return { rate: latencies.length / elapsed, count: latencies.length, p99: percentile99(latencies) }
  } finally {
    for (const socket of sockets) socket.destroy()
  }
}

/** One operation after the other on one connection, until `next` has none. */
function drive(socket, next, onDone) {
  return new Promise((resolve, reject) => {
    let operation
    let since = 0
    let unread = EMPTY

    function proceed(answer) {
      let step = operation?.next(answer)
      if (step?.done) onDone(performance.now() - since)
      while (step === undefined || step.done) {
        operation = next()
        if (operation === undefined) return resolve()
        since = performance.now()
        step = operation.next()
      }
      socket.write(bytesOf(step.value))
    }

    socket.on('data', (chunk) => {
      unread = unread.length === 0 ? chunk : Buffer.concat([unread, chunk])
      try {
        const body = bodyOf(unread)
        if (body === undefined) return
        unread = EMPTY
        proceed(body)
      } catch (error) {
        reject(error)
      }
    })
    socket.on('error', reject)
    socket.on('close', () => reject(new Error('a server closed the connection')))
    socket.setTimeout(TIMEOUT_MS, () => reject(new Error(`no answer within ${TIMEOUT_MS} ms`)))
    proceed()
  })
}

/** @returns the body of an answer that is whole. @throws unless its status is 2xx. */
export function bodyOf(answer) {
  const headEnd = answer.indexOf('\r\n\r\n')
  if (headEnd < 0) return undefined
  const head = answer.latin1Slice(0, headEnd)
  const length = /\r\ncontent-length: *(\d+)/i.exec(head)?.[1]
  if (!head.startsWith('HTTP/1.1 2') || length === undefined)
    throw new Error(`a request failed: ${answer.subarray(0, 2000)}`)
  const body = answer.subarray(headEnd + 4)
  return body.length < Number(length) ? undefined : body
}

export const percentile99 = (numbers) => Float64Array.from(numbers).sort()[Math.floor(numbers.length * 0.99)]
