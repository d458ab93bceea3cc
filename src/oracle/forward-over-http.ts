import { Agent as HttpAgent, type IncomingMessage, request as requestByHttp } from 'node:http'
import { Agent as HttpsAgent, request as requestByHttps } from 'node:https'
import { decodeAnswer, encodeAsk, newNonce, SIGNED_BYTES_MAX } from './signed-ask.js'
import type { OracleForward, TimestampAnswer, TimestampAsk } from './timestamp-ask.js'

export const TIMESTAMPS_PATH = '/v1/internal/timestamps'

export interface ForwardOverHttpOptions {
  /** The 32 bytes that all servers of the table share. */
  readonly secret: Uint8Array
  /** Without a byte from the other server for this long, a request fails. */
  readonly timeoutMs?: number | undefined
}

export interface ForwardOverHttp {
  readonly forward: OracleForward
  /** Closes the connections. */
  close(): void
}

/** Asks other servers by `POST` of a signed ask to `TIMESTAMPS_PATH`, on connections that stay open. */
export function forwardOverHttp({ secret, timeoutMs = 3000 }: ForwardOverHttpOptions): ForwardOverHttp {
  // Of the one that leads and, for a while, of the one that led before.
  const options = { keepAlive: true, maxSockets: 2, maxFreeSockets: 1, timeout: timeoutMs }
  const httpAgent = new HttpAgent(options)
  const httpsAgent = new HttpsAgent(options)

  function post(url: string, body: Uint8Array, signal: AbortSignal): Promise<Uint8Array> {
    return new Promise((resolve, reject) => {
      const target = new URL(`${url.replace(/\/$/, '')}${TIMESTAMPS_PATH}`)
      const headers = { 'content-type': 'application/octet-stream', 'content-length': body.length }
      const isSecure = target.protocol === 'https:'
      const request = (isSecure ? requestByHttps : requestByHttp)(target, {
        method: 'POST',
        agent: isSecure ? httpsAgent : httpAgent,
        headers,
        signal,
        timeout: timeoutMs,
      })
      request.on('timeout', () => request.destroy(new Error('it does not answer')))
      request.on('error', reject)
      request.on('response', (response) => bytesOf(response).then(resolve, reject))
      request.end(body)
    })
  }

  async function forward(url: string, ask: TimestampAsk, signal: AbortSignal): Promise<TimestampAnswer | 'not_leader'> {
    const nonce = newNonce()
    try {
      const bytes = await post(url, encodeAsk(secret, { url, nonce, ask }), signal)
      const answer = decodeAnswer(secret, nonce, bytes)
      if (answer === undefined) throw new Error('its answer is not signed by a server of this table')
      return answer
    } catch (error) {
      throw new Error(`no timestamps from ${url}: ${error instanceof Error ? error.message : error}`, { cause: error })
    }
  }

  return {
    forward,
    close() {
      httpAgent.destroy()
      httpsAgent.destroy()
    },
  }
}

async function bytesOf(response: IncomingMessage): Promise<Uint8Array> {
  if (response.statusCode !== 200) {
    response.destroy()
    throw new Error(`it answers with status ${response.statusCode}`)
  }
  const chunks: Buffer[] = []
  let length = 0
  for await (const chunk of response as AsyncIterable<Buffer>) {
    length += chunk.length
    if (length > SIGNED_BYTES_MAX) {
      response.destroy()
      throw new Error('its answer is too long')
    }
    chunks.push(chunk)
  }
  return Buffer.concat(chunks)
}
