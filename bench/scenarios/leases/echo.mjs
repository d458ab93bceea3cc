// A bare node:http server that answers a PUT with its own JSON: what the HTTP of node alone takes.
import { createServer } from 'node:http'

const server = createServer((request, answer) => {
  const pieces = []
  request.on('data', (piece) => pieces.push(piece))
  request.on('end', () => {
    const text = JSON.stringify(JSON.parse(Buffer.concat(pieces).toString()))
    answer.writeHead(200, {
      'content-type': 'application/json; charset=utf-8',
      'content-length': Buffer.byteLength(text),
    })
    answer.end(text)
  })
})
server.keepAliveTimeout = 600_000 // It waits for its turns.
server.listen(0, '127.0.0.1', () => console.log(`http://127.0.0.1:${server.address().port}`))
