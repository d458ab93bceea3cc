// The servers of one work, each started fresh on a directory of its own, and the loads on them.
import { once } from 'node:events'
import { readdir } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { cpuMicros } from '../proc.mjs'
import { isInstalled, makeDirectory, removeDirectory, start, startWorker, stop } from '../process.mjs'
import { cannon } from './cannon.mjs'
import { startEtcd } from './etcd.mjs'
import { load } from './load.mjs'
import { wrk } from './wrk.mjs'

const hasEtcd = isInstalled('etcd')

/** A contender is a function of seconds that answers `{rate, p99?, cpu?}`; undefined where its program is not installed. */
export class Stage {
  #servers = []
  #directories = []

  /** @param options.sizes how much data the works load. @param options.generator of single requests. */
  constructor({ connections, sizes, generator }) {
    this.connections = connections
    this.generator = generator
    this.sizes = sizes
  }

  #directory() {
    const directory = makeDirectory()
    this.#directories.push(directory)
    return directory
  }

  async #keep(starting) {
    const server = await starting
    this.#servers.push(server)
    return server
  }

  perkv(...flags) {
    const data = this.#directory()
    const args = ['dist/cli.js', 'serve', '--port', '0', '--data', data, ...flags]
    return this.#keep(start(args).then((server) => ({ ...server, data })))
  }

  bare() {
    return this.#keep(start(['bench/bare.mjs']))
  }

  oneRecord() {
    return this.#keep(start(['bench/one-record.mjs', this.#directory()]))
  }

  naive() {
    return this.#keep(start(['bench/naive.mjs', this.#directory()]))
  }

  /** @returns undefined when there is none. */
  async etcd() {
    return hasEtcd ? this.#keep(startEtcd(this.#directory())) : undefined
  }

  /** @returns what calls a work of `bench/raw.mjs`. */
  raw() {
    return this.#worker('bench/raw.mjs', this.#directory())
  }

  /** @param url of a server; a directory of its own without one. @returns what calls a work of `bench/embedded.mjs`. */
  db(url = this.#directory()) {
    return this.#worker('bench/embedded.mjs', url)
  }

  async #worker(program, where) {
    const { child } = await this.#keep(startWorker(program, [where]))
    const died = once(child, 'exit').then(() => {
      throw new Error(`${program} ended`)
    })
    died.catch(() => {}) // Also when it is stopped.
    return async (work, ...args) => {
      child.send([work, ...args])
      const [result] = await Promise.race([once(child, 'message'), died])
      return result
    }
  }

  /** Operations of one request each. The warm-up is always by autocannon, which looks into the answers. */
  single(server, operation, { connections = this.connections } = {}) {
    if (server === undefined) return undefined
    const { url } = server
    const byCannon = (seconds) => cannon({ url, connections, seconds, operation })
    if (this.generator === 'autocannon') return metered(server, byCannon)
    const directory = this.#directory()
    const byWrk = (seconds) => wrk({ url, connections, seconds, operation, directory })
    return Object.assign(metered(server, byWrk), { warm: byCannon })
  }

  /** Operations of several requests, or few and long ones; `weight`: what each counts. */
  load(server, operation, { connections = this.connections, weight = 1 } = {}) {
    return metered(server, async (seconds) => {
      const { rate, count, p99 } = await load({ url: server.url, connections, seconds, operation })
      return { rate: rate * weight, count: count * weight, p99 }
    })
  }

  async close() {
    await Promise.all(this.#servers.map(stop))
    for (const directory of this.#directories) removeDirectory(directory)
  }
}

/** Adds the server's processor time per operation, in microseconds. */
function metered(server, run) {
  return async (seconds) => {
    const before = cpuMicros(server)
    const { count, ...result } = await run(seconds)
    const after = cpuMicros(server)
    if (after === undefined) return result
    return { ...result, cpu: { all: (after.all - before.all) / count, main: (after.main - before.main) / count } }
  }
}

/** Waits until LevelDB has compacted what was loaded: until its files have been the same for a second. */
export async function settle({ data }) {
  const files = async () => (await readdir(data)).toSorted().join()
  for (let before = '', now = await files(); now !== before; now = await files()) {
    before = now
    await sleep(1000)
  }
}
