// A scan of everything as a stream of lines.
import { once } from 'node:events'
import { get } from 'node:http'

const NEWLINE = 10

/** Scans again and again for some seconds, one scan at a time. @returns pairs a second. */
export async function streamScans({ url, prefix, count, seconds }) {
  const begin = performance.now()
  let pairs = 0
  do {
    const found = await countLines(`${url}/v1/kv?prefix=${prefix}`)
    if (found !== count) throw new Error(`the scan found ${found} pairs of ${count}`)
    pairs += found
  } while (performance.now() < begin + seconds * 1000)
  return { rate: (pairs * 1000) / (performance.now() - begin) }
}

async function countLines(url) {
  const [response] = await once(get(url, { headers: { accept: 'application/x-ndjson' } }), 'response')
  if (response.statusCode !== 200) throw new Error(`the scan was answered with ${response.statusCode}`)
  let lines = 0
  for await (const chunk of response)
    for (let at = chunk.indexOf(NEWLINE); at >= 0; at = chunk.indexOf(NEWLINE, at + 1)) lines++
  return lines
}
