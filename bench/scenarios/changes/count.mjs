// One stream, of which only the number of changes is looked at: a reader that costs little beside the server.
import { request } from 'node:http'
import { load } from '../../harness/load.mjs'
import { freshMany } from '../../harness/payload.mjs'
import { freshPut, putAll } from '../../harness/requests.mjs'

const CHANGE = Buffer.from('"op":"')

/**
 * @param accept of the request. @param until number of changes after which it hangs up, or undefined: up to the end.
 * @returns changes, and seconds from the head of the answer on.
 */
export function countChanges(url, path, { accept = 'application/x-ndjson', until, opened = () => {} } = {}) {
  return new Promise((resolve, reject) => {
    const sent = request(new URL(path, url), { headers: { accept }, agent: false }, (answer) => {
      if (answer.statusCode !== 200) return reject(new Error(`${path} was answered with ${answer.statusCode}`))
      const since = performance.now()
      let [changes, rest] = [0, Buffer.alloc(0)]
      const done = () => resolve({ changes, seconds: (performance.now() - since) / 1000 })
      answer.on('data', (chunk) => {
        const text = Buffer.concat([rest, chunk])
        let at = 0
        for (let found = text.indexOf(CHANGE); found !== -1; found = text.indexOf(CHANGE, at)) {
          at = found + CHANGE.length
          changes++
        }
        rest = text.subarray(Math.max(at, text.length - CHANGE.length + 1))
        if (until === undefined || changes < until) return
        done()
        sent.destroy()
      })
      answer.on('end', done)
      answer.on('error', () => {}) // Hung up above.
      opened()
    })
    sent.on('error', reject)
    sent.end()
  })
}

/** Writes so many new keys, in transactions of so many puts. @returns keys per second. */
export async function writeFresh(url, count, size, connections) {
  const { rate } = await load({
    ...{ url, connections, count: Math.round(count / size) },
    request: () => (size === 1 ? freshPut() : putAll(freshMany(size))),
  })
  return rate * size
}
