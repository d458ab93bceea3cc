// Requests as the text that goes over the wire: written by hand they cost the load generator almost nothing.
import { pack } from 'msgpackr'

const withBody = (method, path, type, length) =>
  `${method} ${path} HTTP/1.1\r\nHost: bench\r\nContent-Type: ${type}\r\nContent-Length: ${length}\r\n\r\n`

export const get = (path) => `GET ${path} HTTP/1.1\r\nHost: bench\r\n\r\n`

/** `body`: ASCII. */
export const put = (path, body) => withBody('PUT', path, 'application/octet-stream', body.length) + body

/** Its strings: ASCII. */
export function postJson(path, data) {
  const body = JSON.stringify(data)
  return withBody('POST', path, 'application/json', body.length) + body
}

export function postMsgpack(path, data) {
  const body = pack(data)
  return Buffer.concat([Buffer.from(withBody('POST', path, 'application/msgpack', body.length)), body])
}
