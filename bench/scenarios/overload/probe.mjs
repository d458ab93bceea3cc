import { get } from 'node:http'
import { hasEnded, rssBytes } from '../../harness/process.mjs'

const EVERY_MS = 100

/** Looks at a server ten times a second: its memory, and how soon `/livez` is answered on a new connection each time. */
export class Probe {
  rssPeak = 0
  livez = []
  livezFailed = 0
  #timer

  constructor(server) {
    this.#timer = setInterval(() => {
      if (hasEnded(server)) return
      this.rssPeak = Math.max(this.rssPeak, rssBytes(server))
      const askedAt = performance.now()
      get(`${server.url}/livez`, { agent: false }, (response) => {
        response.resume()
        response.once('end', () => this.livez.push(performance.now() - askedAt))
        if (response.statusCode !== 200) this.livezFailed++
      }).once('error', () => this.livezFailed++)
    }, EVERY_MS)
  }

  stop() {
    clearInterval(this.#timer)
    return this
  }
}
