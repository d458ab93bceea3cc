// Requests as plain objects.
import { pack } from 'msgpackr'
import { fresh } from './payload.mjs'

const withBody = (method, path, type, body) => ({ method, path, headers: { 'content-type': type }, body })

export const get = (path) => ({ method: 'GET', path })
export const remove = (path) => ({ method: 'DELETE', path })
export const put = (path, body) => withBody('PUT', path, 'application/octet-stream', body)
export const putJson = (path, data) => withBody('PUT', path, 'application/json', JSON.stringify(data))
export const postJson = (path, data) => withBody('POST', path, 'application/json', JSON.stringify(data))
const postMsgpack = (path, data) => withBody('POST', path, 'application/msgpack', pack(data))

/** Puts a new key. */
export function freshPut() {
  const { key, value } = fresh()
  return put(`/v1/kv/${key}`, value)
}

/** Puts pairs in one transaction, the values as `bin`, as a client that has bytes would send them. */
export const putAll = (pairs) =>
  postMsgpack('/v1/txn', { ops: pairs.map(({ key, value }) => ({ op: 'put', key, value: Buffer.from(value) })) })
export const putAllAsJson = (pairs) =>
  postJson('/v1/txn', { ops: pairs.map(({ key, value }) => ({ op: 'put', key, value })) })

/**
 * What goes over the wire: written by hand it costs a load generator almost nothing. @param request.length of the body.
 * @param request a Buffer: bytes that were made before.
 */
export function bytesOf(request) {
  if (Buffer.isBuffer(request)) return request
  const { method, path, headers = {}, body = '', length = Buffer.byteLength(body) } = request
  let head = `${method} ${path} HTTP/1.1\r\nHost: localhost\r\n`
  for (const name in headers) head += `${name}: ${headers[name]}\r\n`
  if (method !== 'GET') head += `content-length: ${length}\r\n`
  head += '\r\n'
  return typeof body === 'string' ? head + body : Buffer.concat([Buffer.from(head), body])
}
