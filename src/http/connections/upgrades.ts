import type { IncomingMessage, Server } from 'node:http'
import type { Socket } from 'node:net'
import { afterAnswers } from './pipelining.js'

/**
 * Serves requests with `Upgrade` as if they had no such header (RFC 9110, section 7.8). Node's parser stops after their heads,
 * so without a listener it would lose everything after them, and answer later requests in their place.
 * @param serve node:http's listener for connections.
 */
export function ignoreUpgrades(server: Server, serve: (socket: Socket) => void): void {
  server.on('upgrade', (request: IncomingMessage, socket: Socket, behind: Buffer) => {
    const ignoreError = (): void => {}
    socket.on('error', ignoreError)
    afterAnswers(socket, () => {
      if (!socket.writable) return void socket.destroySoon()
      socket.off('error', ignoreError)
      serve(socket)
      socket.emit('data', Buffer.concat([headWithoutUpgrade(request), behind]))
      if (socket.readableEnded) socket.emit('end')
      socket.resume()
    })
  })
}

function headWithoutUpgrade({ method, url, httpVersion, rawHeaders }: IncomingMessage): Buffer {
  let head = `${method} ${url} HTTP/${httpVersion}\r\n`
  for (let i = 0; i < rawHeaders.length; i += 2)
    if (rawHeaders[i]?.toLowerCase() !== 'upgrade') head += `${rawHeaders[i]}: ${rawHeaders[i + 1]}\r\n`
  return Buffer.from(`${head}\r\n`, 'latin1')
}
