// Load: as much as some connections can do, or at a steady rate; and calls within this process.
//
// An operation is a generator function: it yields requests, gets the body of each answer back, and is done when it returns. One of a
// single request is a function that returns that.
import { setTimeout as sleep } from 'node:timers/promises'
import { failureOf, openConnections, withConnections } from './connection.mjs'
import { latenciesOf } from './numbers.mjs'
import { bytesOf } from './requests.mjs'

/**
 * Connections that each do one operation after the other, for so many `seconds`, or `count` times, or until the promise `until` is
 * fulfilled; those in flight at the end are waited for, and count.
 * @param load.url of a server, or of several, among which the connections are shared out.
 * @param load.operation gets its number, and that of its connection. @param load.request instead: makes an operation's only request.
 * @param load.tolerated statuses that end an operation, which then counts as failed; all other failures throw.
 * @param load.onDone is called with the latency of each operation.
 * @returns operations per second, how many there were, how many failed, latencies in ms, and for how many seconds it ran.
 */
export async function load({
  url,
  connections = 64,
  request,
  operation = only(request),
  seconds,
  count,
  until,
  tolerated = [],
  onDone,
}) {
  const urls = [url].flat()
  const opened = await openConnections(connections, (i) => urls[i % urls.length])
  const latencies = []
  let [started, failed, isOver] = [0, 0, false]
  const over = () => {
    isOver = true
  }
  until?.then(over, over)
  const begin = performance.now()
  const end = begin + (seconds ?? Number.POSITIVE_INFINITY) * 1000
  const most = count ?? Number.POSITIVE_INFINITY
  const order = {
    next: (i) => (isOver || started >= most || performance.now() >= end ? undefined : operation(started++, i)),
    done(latency) {
      latencies.push(latency)
      onDone?.(latency)
    },
    isTolerated(status) {
      const is = tolerated.includes(status)
      if (is) failed++
      return is
    },
  }
  try {
    await Promise.all(opened.map((connection, i) => drive(connection, i, order)))
  } finally {
    for (const connection of opened) connection.close()
  }
  const elapsed = (performance.now() - begin) / 1000
  const answered = latencies.length
  return { rate: answered / elapsed, count: answered, failed, ...latenciesOf(latencies), elapsed }
}

/** An operation of one request. */
const only = (request) => (n, i) => [request(n, i)].values()

function drive(connection, i, { next, done, isTolerated }) {
  return new Promise((resolve, reject) => {
    let steps
    let since = 0
    let asked
    function begin() {
      steps = next(i)
      if (steps === undefined) return resolve()
      since = performance.now()
      proceed()
    }
    function proceed(body) {
      const step = steps.next(body)
      if (!step.done) {
        asked = step.value
        connection.send(bytesOf(asked), answered)
        return
      }
      done(performance.now() - since)
      begin()
    }
    function answered(error, status, body) {
      try {
        if (error !== undefined) throw error
        if (status < 300) proceed(body)
        else if (isTolerated(status)) begin()
        else throw failureOf(asked, status, body)
      } catch (error) {
        reject(error)
      }
    }
    begin()
  })
}

const CONNECTIONS = 64

/**
 * Work at a steady rate, whether or not the earlier work is done: what has to wait counts from when it was due.
 * @param work of a connection, the number of the piece, and when it was due.
 */
export async function atRate(url, rate, seconds, work) {
  const count = Math.round(rate * seconds)
  const since = performance.now()
  let next = 0
  await withConnections(url, Math.min(CONNECTIONS, count), async (connection) => {
    while (next < count) {
      const n = next++
      const dueAt = since + (n * 1000) / rate
      const early = dueAt - performance.now()
      if (early > 0) await sleep(early)
      await work(connection, n, dueAt)
    }
  })
}

/** Calls within this process, so many in flight; those in flight at the end are waited for, and count. */
export async function inLanes(inFlight, seconds, call) {
  const latencies = []
  const begin = performance.now()
  const end = begin + seconds * 1000
  const lane = async () => {
    for (let since = performance.now(); since < end; ) {
      await call()
      const now = performance.now()
      latencies.push(now - since)
      since = now
    }
  }
  await Promise.all(Array.from({ length: inFlight }, lane))
  const count = latencies.length
  return { rate: (count * 1000) / (performance.now() - begin), count, ...latenciesOf(latencies) }
}

/** Runs again and again for some seconds. @param run answers how much it did. @returns how much per second. */
export async function repeat(seconds, run) {
  const begin = performance.now()
  let done = 0
  do done += await run()
  while (performance.now() < begin + seconds * 1000)
  return { rate: (done * 1000) / (performance.now() - begin) }
}
