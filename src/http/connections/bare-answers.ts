import { type IncomingMessage, type Server, STATUS_CODES } from 'node:http'
import type { Socket } from 'node:net'
import { invalid, KvError } from '../../errors/kv-error.js'
import type { Limits } from '../../limits.js'
import { CONTENT_TYPE } from '../wire/media-type.js'
import { MALFORMED, problemOf } from '../wire/problem.js'
import { toJson } from '../wire/wire.js'
import { SAFE_HEADER_LINES } from './browser-safety.js'
import { answerLast } from './pipelining.js'
import { isStreaming } from './streaming-requests.js'

/** A client that does not read the last answer of a connection, or keeps writing, is cut off after this time. */
const LINGER_MS = 1000

interface ClientError extends Error {
  readonly code?: string
}

/**
 * Answers on a bare socket, where no request exists: malformed HTTP, headers that are too long, a request that takes too long.
 * Node's own answers would carry neither a problem nor the headers that protect browsers.
 */
export function malformedHandler({ headerBytesMax }: Limits) {
  return (error: ClientError, socket: Socket): void => {
    if (error.code === 'ECONNRESET') return void socket.destroy()
    if (error.code !== 'ERR_HTTP_REQUEST_TIMEOUT')
      answerLast(socket, () => endWithProblem(socket, malformed(error, headerBytesMax)))
    else if (!isStreaming(socket)) answerLast(socket, () => endWith(socket, 408))
  }
}

function malformed({ code }: ClientError, limit: number): KvError {
  if (code === 'HPE_HEADER_OVERFLOW')
    return new KvError('payload_too_large', `the request line and headers have over ${limit} bytes`, {
      field: 'headers',
      limit,
    })
  const isUrl = code === 'HPE_INVALID_URL'
  return invalid('headers', isUrl ? 'the URL has characters that must be percent-encoded' : MALFORMED)
}

/** Answers CONNECT with 404. Node gives the socket to a listener and closes it without one. */
export function refuseTunnels(server: Server): void {
  server.on('connect', ({ url }: IncomingMessage, socket: Socket) => {
    socket.on('error', () => {})
    answerLast(socket, () => endWithProblem(socket, new KvError('not_found', `there is no CONNECT ${url}`, {})))
  })
}

function endWithProblem(socket: Socket, error: KvError): void {
  const { status, body } = problemOf(error, '')
  endWith(socket, status, `${toJson(body)}\n`)
}

/** @param problem JSON text; empty when the status says everything. */
function endWith(socket: Socket, status: number, problem = ''): void {
  // Not the socket's own timer: answers that are still to be written set that one.
  const cut = setTimeout(() => socket.destroy(), LINGER_MS)
  socket.once('close', () => clearTimeout(cut))
  const type = problem === '' ? '' : `content-type: ${CONTENT_TYPE.problem}\r\n`
  const length = `content-length: ${Buffer.byteLength(problem)}\r\n`
  const date = `date: ${new Date().toUTCString()}\r\n`
  const head = `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n${SAFE_HEADER_LINES}${type}${length}${date}`
  socket.end(`${head}connection: close\r\n\r\n${problem}`)
}
