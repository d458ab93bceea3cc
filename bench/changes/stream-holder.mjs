// node stream-holder.mjs URL, by fork: holds streams of events. Plain sockets: 10 000 of them cost little.
import { connect } from 'node:net'

const OPENING_MAX = 200
const [, , url] = process.argv
const { hostname, port } = new URL(url)
const EVENT = /event: (txn|value)\ndata: [^\n]*?"key":"([^"]*)"/g

const events = []
let waiting
let isCounting = false
let awaited = 0
let opened = () => {}

const fail = (error) => process.send({ error })
const reply = () => {
  if (waiting === undefined || events.length < waiting) return
  process.send({ result: events.splice(0, waiting) })
  waiting = undefined
}

function open(path) {
  const socket = connect({ host: hostname, port, noDelay: true })
  let text = ''
  let isOpen = false
  socket.setEncoding('utf8')
  socket.write(`GET ${path} HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\r\n`)
  socket.on('data', (chunk) => {
    text += chunk
    const end = text.lastIndexOf('\n\n')
    if (end === -1) return
    if (!isOpen && !/\nevent: /.test(text)) return // The head, and the time to reconnect.
    if (!isOpen && !text.startsWith('HTTP/1.1 200')) return fail(text.slice(0, 200))
    if (!isOpen) opened()
    isOpen = true
    if (isCounting) {
      const at = performance.timeOrigin + performance.now()
      for (const [, , key] of text.slice(0, end + 1).matchAll(EVENT)) events.push({ key, at })
    }
    text = text.slice(end + 1)
    reply()
  })
  socket.on('error', (error) => fail(error.message))
  socket.on('close', () => fail(`a stream has ended: ${text.slice(0, 200)}`))
}

process.on('message', ({ paths, count }) => {
  if (paths === undefined) {
    waiting = count
    return reply()
  }
  let next = 0
  opened = () => {
    if (next < paths.length) open(paths[next++])
    if (--awaited > 0) return
    isCounting = true
    process.send({ result: paths.length })
  }
  awaited = paths.length
  while (next < Math.min(OPENING_MAX, paths.length)) open(paths[next++])
})
process.on('disconnect', () => process.exit())
process.on('SIGTERM', () => process.exit())
