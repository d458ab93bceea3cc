import { startWorker, stop } from '../process.mjs'

/** Holders in another process, and what they are told to do. */
export class Holders {
  #worker
  #results = new Map()
  #count = 0

  static async open(settings) {
    const holders = new Holders(startWorker('bench/leases/holders.mjs', [JSON.stringify(settings)]))
    await holders.result('ready')
    return holders
  }

  constructor(worker) {
    this.#worker = worker
    worker.child.on('message', ({ id, result }) => this.#of(id).resolve(result))
    worker.child.once('exit', (code) => {
      if (code) throw new Error('the holders have ended')
    })
  }

  /** @returns the id under which what comes later is told, and what is known at once. */
  async do(what, rest = {}) {
    const id = `${++this.#count}`
    this.#worker.child.send({ id, what, ...rest })
    return { id, ...(await this.result(id)) }
  }

  result(id) {
    return this.#of(id).promise
  }

  close() {
    this.#worker.child.disconnect()
    return stop(this.#worker)
  }

  #of(id) {
    if (!this.#results.has(id)) {
      let resolve
      const promise = new Promise((done) => {
        resolve = done
      })
      this.#results.set(id, { promise, resolve })
    }
    return this.#results.get(id)
  }
}
