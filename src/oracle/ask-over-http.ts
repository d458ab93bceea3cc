import { Agent as HttpAgent, type IncomingMessage, request as requestByHttp } from 'node:http'
import { Agent as HttpsAgent, request as requestByHttps } from 'node:https'
import { type Asks, asksBy, CannotAnswer } from './signed-ask.js'

export interface AskOverHttpOptions {
  readonly secret: Uint8Array
  /** A request fails after this long without a byte from the other server. Callers have shorter bounds of their own. */
  readonly timeoutMs?: number | undefined
}

export function internalPath(name: string): string {
  return `/v1/internal/${name}`
}

/** Asks other servers by a signed `POST` to the path of the ask's kind, over connections that stay open. */
export function askOverHttp({ secret, timeoutMs = 8000 }: AskOverHttpOptions): Asks {
  // Per server: nobody asks for more than four things at a time.
  const options = { keepAlive: true, maxSockets: 4, maxFreeSockets: 2, timeout: timeoutMs }
  const httpAgent = new HttpAgent(options)
  const httpsAgent = new HttpsAgent(options)

  function post(target: URL, body: Uint8Array, answerBytesMax: number, signal: AbortSignal): Promise<Uint8Array> {
    return new Promise((resolve, reject) => {
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
      request.on('response', (response) => responseBytes(response, answerBytesMax).then(resolve, reject))
      request.end(body)
    })
  }

  return {
    ask: asksBy(secret, (name, url, body, answerBytesMax, signal) => {
      const target = new URL(`${url.replace(/\/$/, '')}${internalPath(name)}`)
      return post(target, body, answerBytesMax, signal)
    }),
    close() {
      httpAgent.destroy()
      httpsAgent.destroy()
    },
  }
}

async function responseBytes(response: IncomingMessage, bytesMax: number): Promise<Uint8Array> {
  if (response.statusCode !== 200) {
    response.destroy()
    const why = `it answers with status ${response.statusCode}`
    throw response.statusCode === 503 ? new CannotAnswer(why) : new Error(why)
  }
  const chunks: Buffer[] = []
  let length = 0
  for await (const chunk of response as AsyncIterable<Buffer>) {
    length += chunk.length
    if (length > bytesMax) {
      response.destroy()
      throw new Error('its answer is too long')
    }
    chunks.push(chunk)
  }
  return Buffer.concat(chunks)
}
