import type { IncomingMessage, Server } from 'node:http'
import { invalid, KvError } from '../../errors/kv-error.js'

declare module 'node:http' {
  interface IncomingMessage {
    /** Asks the client for its body. undefined: it sends the body unasked. */
    askForBody?: () => void
  }
}

/** A host and a port (RFC 9110, section 7.2). */
const HOST = /^(?:\[[\da-f:.]+\]|[\w\-.~%!$&'()*+,;=]+)(?::\d*)?$/i
const CONTINUE = /^\s*(?:100-continue\s*(?:,\s*|$))*$/i

/** Whether the value of a `Host` header is valid; a request needs exactly one (RFC 9112, section 3.2). */
export function isHost(text: string): boolean {
  return HOST.test(text)
}

/**
 * The error of a head that no request may have: ambiguous, or in an unknown coding. Node keeps the first of two lines of a
 * header that may occur once, and joins the lines of others to lists, or to malformed values.
 */
export function headError({ headers, rawHeaders, httpVersion, method }: IncomingMessage): KvError | undefined {
  const { host, expect, 'transfer-encoding': transfer, 'content-encoding': encoding } = headers
  const isOld = httpVersion === '1.0'
  if (host === undefined && !isOld) return invalid('headers', 'the request has no Host header')
  if (host !== undefined && !isHost(host)) return invalid('headers', 'the Host header names no host')
  const twice = givenTwice(rawHeaders)
  if (twice !== undefined) return invalid('headers', `the request has two ${twice} headers`)
  if (transfer !== undefined && (isOld || transfer.toLowerCase() !== 'chunked'))
    return invalid('headers', 'the only transfer coding is chunked, of HTTP/1.1')
  if (encoding !== undefined && !/^(?:identity)?$/i.test(encoding) && method !== 'GET' && method !== 'HEAD')
    return new KvError('unsupported_media_type', 'bodies are taken without a Content-Encoding only', {})
  if (expect !== undefined && !isOld && !CONTINUE.test(expect))
    return new KvError('expectation_failed', 'the only expectation is 100-continue', {})
  return undefined
}

/** @returns the name of a header that occurs twice although Node would silently drop the second. */
function givenTwice(rawHeaders: readonly string[]): string | undefined {
  let seen = 0
  for (let i = 0; i < rawHeaders.length; i += 2) {
    const bit = singular(rawHeaders[i] as string)
    if ((seen & bit) !== 0) return rawHeaders[i]
    seen |= bit
  }
  return undefined
}

function singular(name: string): number {
  switch (name.length) {
    case 4:
      return name.toLowerCase() === 'host' ? 1 : 0
    case 12:
      return name.toLowerCase() === 'content-type' ? 2 : 0
    case 13:
      return name.toLowerCase() === 'authorization' ? 4 : 0
    default:
      return 0
  }
}

/**
 * Answers `Expect`. Node would ask for the body before the request is checked, and refuse other expectations itself, without a
 * problem.
 */
export function answerExpectations(server: Server): void {
  server.on('checkContinue', (request, answer) => {
    request.askForBody = () => answer.writeContinue()
    server.emit('request', request, answer)
  })
  server.on('checkExpectation', (request, answer) => server.emit('request', request, answer))
}
