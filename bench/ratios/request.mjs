// Requests as plain objects, the same for whichever generator sends them.
import { pack } from 'msgpackr'

const withBody = (method, path, type, body) => ({ method, path, headers: { 'content-type': type }, body })

export const get = (path) => ({ method: 'GET', path })
export const put = (path, body) => withBody('PUT', path, 'application/octet-stream', body)
export const postJson = (path, data) => withBody('POST', path, 'application/json', JSON.stringify(data))
export const putJson = (path, data) => withBody('PUT', path, 'application/json', JSON.stringify(data))
export const postMsgpack = (path, data) => withBody('POST', path, 'application/msgpack', pack(data))

/** What goes over the wire: written by hand it costs a load generator almost nothing. @param request.length of the body. */
export function bytesOf({ method, path, headers = {}, body = '', length = Buffer.byteLength(body) }) {
  let head = `${method} ${path} HTTP/1.1\r\nHost: localhost\r\n`
  for (const name in headers) head += `${name}: ${headers[name]}\r\n`
  if (method !== 'GET') head += `content-length: ${length}\r\n`
  head += '\r\n'
  return typeof body === 'string' ? head + body : Buffer.concat([Buffer.from(head), body])
}
