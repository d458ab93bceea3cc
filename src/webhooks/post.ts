import { type IncomingMessage, type OutgoingHttpHeaders, request as overHttp } from 'node:http'
import { request as overHttps } from 'node:https'
import { cutText } from '../bytes/cut-text.js'
import { onAbort } from '../event-loop/on-abort.js'
import type { FailedAttempt } from './retry-policy.js'

/** So much of an answer that is no success is read, and shown. */
const SHOWN_BYTES = 200
const HEADERS_BYTES_MAX = 16 * 1024

export interface Posting {
  readonly url: URL
  readonly headers: OutgoingHttpHeaders
  readonly body: Uint8Array
  readonly timeoutMs: number
  readonly signal: AbortSignal
}

/**
 * Sends one request, on a connection of its own, and follows no redirect. Never rejects.
 * @returns undefined for an answer of 200 to 299, of which nothing but the status is read.
 */
export function post({ url, headers, body, timeoutMs, signal }: Posting): Promise<FailedAttempt | undefined> {
  return new Promise((resolve) => {
    const send = url.protocol === 'https:' ? overHttps : overHttp
    const request = send(url, { method: 'POST', headers, agent: false, maxHeaderSize: HEADERS_BYTES_MAX })
    /** The first call decides. */
    const end = (outcome: FailedAttempt | undefined): void => {
      clearTimeout(timer)
      unlisten()
      request.destroy()
      resolve(outcome)
    }
    let late = (): void => end({ error: `no answer within ${timeoutMs} ms` })
    const timer = setTimeout(() => late(), timeoutMs)
    const unlisten = onAbort(signal, () => end({ error: 'the server stopped sending' }))
    request.on('error', ({ code, message }: NodeJS.ErrnoException) => {
      // The message of such an error has names in the certificate of the target.
      if (code?.startsWith('ERR_TLS')) end({ error: code, text: message })
      else end({ error: message || (code ?? 'no connection') })
    })
    request.on('close', () => end({ error: 'the connection was closed without an answer' }))
    request.on('response', (response) => {
      const { statusCode: status = 0 } = response
      if (status >= 200 && status < 300) return end(undefined)
      const retryAfter = response.headers['retry-after']
      const ended = (text: string): void => end({ error: `HTTP ${status}`, text, status, retryAfter })
      late = beginningOf(response, ended)
    })
    request.end(body)
  })
}

/**
 * @param read called with the beginning of a body, in one line.
 * @returns a function that stops reading.
 */
function beginningOf(response: IncomingMessage, read: (text: string) => void): () => void {
  const parts: Buffer[] = []
  let bytes = 0
  const end = (): void => {
    const text = cutText(Buffer.concat(parts).toString(), SHOWN_BYTES)
    read(text.replace(/[\p{Cc}\p{Cf}\s]+/gu, ' ').trim())
  }
  response.on('data', (part: Buffer) => {
    parts.push(part.subarray(0, SHOWN_BYTES))
    bytes += part.length
    if (bytes >= SHOWN_BYTES) end()
  })
  response.on('error', end)
  response.on('close', end)
  return end
}
