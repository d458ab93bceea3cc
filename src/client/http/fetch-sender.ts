import { joined } from './joined.js'
import { AnswerTooLong, type Sender } from './sender.js'

export type Fetch = (url: string, init: RequestInit) => Promise<Response>

export function fetchSender(url: string, fetch: Fetch): Sender {
  const always = { cache: 'no-store', redirect: 'manual' } as const // Browsers would cache reads.
  return {
    async send(path, request) {
      const response = await fetch(`${url}${path}`, { ...request, ...always })
      const { status, headers } = response
      return { status, headers, arrayBuffer: (bytesMax) => allOf(response, bytesMax), chunks: () => chunksOf(response) }
    },
    close() {}, // The platform closes the connections of fetch.
  }
}

/** For platforms such as React Native: `response.arrayBuffer()` has no bound, but they have nothing else. */
async function allOf(response: Response, bytesMax: number): Promise<ArrayBuffer> {
  if (response.body?.getReader === undefined) return response.arrayBuffer()
  const chunks: Uint8Array[] = []
  let bytes = 0
  for await (const chunk of chunksOf(response)) {
    bytes += chunk.length
    if (bytes > bytesMax) throw new AnswerTooLong(bytesMax)
    chunks.push(chunk)
  }
  return joined(chunks)
}

/** For browsers, which cannot iterate over a body. */
async function* chunksOf({ body }: Response): AsyncGenerator<Uint8Array, void> {
  if (body === null) return
  const reader = body.getReader()
  for (;;) {
    const { done, value } = await reader.read()
    if (done) return
    yield value
  }
}
