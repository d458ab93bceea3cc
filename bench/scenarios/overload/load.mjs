// A worker: many clients on bare sockets. Whatever is spent here the server doesn't have.
import { connect } from 'node:net'
import { answerCalls } from '../../harness/worker.mjs'
import { KINDS } from './kinds.mjs'

/** Of a latency histogram, in milliseconds. */
const BUCKETS = 60_000
/** A client that is turned away at the door comes again. */
const AGAIN_MS = 100

const counts = {}
const latencies = new Uint32Array(BUCKETS)
let isStopped = false
const sockets = new Set()

const note = (what) => {
  counts[what] = (counts[what] ?? 0) + 1
}

function open(i, kind, { hostname, port }) {
  if (isStopped) return
  const { request, ahead, reads } = kind
  const bytes = request(i)
  const sentAt = []
  /** Of the answer's body that is still to come; text of a head that is not whole. */
  let bodyLeft = 0
  let head = ''
  const socket = connect(Number(port), hostname)
  sockets.add(socket)
  const send = () => {
    while (!isStopped && sentAt.length < ahead) {
      sentAt.push(performance.now())
      if (!socket.write(bytes)) return
    }
  }
  socket.on('connect', () => {
    if (!reads(i)) socket.pause()
    send()
  })
  socket.on('drain', send)
  if (reads(i)) socket.on('data', take)
  socket.on('error', () => {})
  socket.on('close', () => {
    sockets.delete(socket)
    if (isStopped) return
    note('broken')
    setTimeout(() => open(i, kind, { hostname, port }), AGAIN_MS)
  })

  function take(chunk) {
    let at = 0
    while (at < chunk.length) {
      if (bodyLeft > 0) {
        const taken = Math.min(bodyLeft, chunk.length - at)
        bodyLeft -= taken
        at += taken
        continue
      }
      const text = head + chunk.latin1Slice(at, Math.min(chunk.length, at + 2000))
      const end = text.indexOf('\r\n\r\n')
      if (end === -1) {
        head = text
        return
      }
      at += end + 4 - head.length
      head = ''
      const length = /content-length: (\d+)/i.exec(text.slice(0, end))
      note(text.slice(9, 12))
      bodyLeft = length === null ? Number.POSITIVE_INFINITY : Number(length[1]) // A stream: counted once, read on.
      latencies[Math.min(BUCKETS - 1, Math.floor(performance.now() - sentAt.shift()))]++
    }
    send()
  }
}

function percentile(part) {
  let left = latencies.reduce((sum, n) => sum + n, 0) * part
  if (left === 0) return undefined
  return latencies.findIndex((n) => {
    left -= n
    return left <= 0
  })
}

answerCalls({
  start({ name, url, connections }) {
    for (let i = 0; i < connections; i++) open(i, KINDS[name], new URL(url))
  },
  stop() {
    isStopped = true
    for (const socket of sockets) socket.destroy()
    return { counts, p99: percentile(0.99) }
  },
})
