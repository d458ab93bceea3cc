// A worker: holds streams of events. Plain sockets: 10 000 of them cost little.
import { connect } from 'node:net'
import { answerCalls } from '../../harness/worker.mjs'
import { clockAt } from './streams.mjs'

const OPENING_MAX = 200
const [, , url] = process.argv
const { hostname, port } = new URL(url)
const EVENT = /event: (?:txn|value)\ndata: [^\n]*?"key":"([^"]*)"/g

const events = []
let awaited = { count: Number.POSITIVE_INFINITY }
let isCounting = false

/** Streams that fail end the process, and so the measurement. */
const fail = (text) => {
  throw new Error(`a stream has failed: ${text}`)
}

function open(path, opened) {
  const socket = connect({ host: hostname, port, noDelay: true })
  let text = ''
  let isOpen = false
  socket.setEncoding('utf8')
  socket.write(`GET ${path} HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\r\n`)
  socket.on('data', (chunk) => {
    text += chunk
    const end = text.lastIndexOf('\n\n')
    if (end === -1) return
    if (!isOpen) {
      if (!/\nevent: /.test(text)) return // The head, and the time to reconnect.
      if (!text.startsWith('HTTP/1.1 200')) fail(text.slice(0, 200))
      isOpen = true
      opened()
    }
    if (isCounting) {
      const at = clockAt()
      for (const [, key] of text.slice(0, end + 1).matchAll(EVENT)) events.push({ key, at })
      answer()
    }
    text = text.slice(end + 1)
  })
  socket.on('error', (error) => fail(error.message))
  socket.on('close', () => fail(text.slice(0, 200)))
}

function answer() {
  const { count, resolve } = awaited
  if (events.length < count) return
  awaited = { count: Number.POSITIVE_INFINITY }
  resolve(events.splice(0, count))
}

answerCalls({
  async open(paths) {
    const left = paths.values()
    const lane = async () => {
      for (const path of left) await new Promise((opened) => open(path, opened))
    }
    await Promise.all(Array.from({ length: OPENING_MAX }, lane))
    isCounting = true
  },
  events: (count) =>
    new Promise((resolve) => {
      awaited = { count, resolve }
      answer()
    }),
})
