import { Connection } from './connection.mjs'
import { bytesOf, get } from './requests.mjs'

const REQUEST = bytesOf(get('/v1/kv/probe'))

/** Asks for a key again and again on one connection: how long others wait is about the longest turn of the server's event loop. */
export class Probe {
  #connection
  #longestMs = 0
  #isAsking = false

  static async of({ url }) {
    const probe = new Probe()
    probe.#connection = await Connection.open(url)
    probe.resume()
    return probe
  }

  /** @returns the longest answer since the last reading, in ms. */
  take() {
    const taken = this.#longestMs
    this.#longestMs = 0
    return taken
  }

  pause() {
    this.#isAsking = false
  }

  resume() {
    this.#isAsking = true
    this.#longestMs = 0
    this.#ask()
  }

  close() {
    this.pause()
    this.#connection.close()
  }

  #ask() {
    const begin = performance.now()
    this.#connection.send(REQUEST, (error) => {
      if (error !== undefined) return
      this.#longestMs = Math.max(this.#longestMs, performance.now() - begin)
      if (this.#isAsking) setTimeout(() => this.#ask(), 0)
    })
  }
}
