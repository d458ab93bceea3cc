// The servers of one work, each started fresh on a directory of its own, and the loads on them.
import { load } from '../../harness/load.mjs'
import { startPerkv } from '../../harness/perkv.mjs'
import { isInstalled, makeDirectory, removeDirectory, start, startWorker, stop } from '../../harness/process.mjs'
import { metered } from '../../harness/rounds.mjs'
import { cannon } from './cannon.mjs'
import { startEtcd } from './etcd.mjs'
import { wrk } from './wrk.mjs'

const HERE = 'bench/scenarios/ratios'
const hasEtcd = isInstalled('etcd')
const hasWrk = isInstalled('wrk')
/** Of single requests. */
export const GENERATOR = hasWrk ? 'wrk' : 'autocannon'

/** A contender is a function of seconds that answers `{rate, p99?, cpu?}`; undefined where its program is not installed. */
export class Stage {
  #servers = []
  #directories = []

  /** @param settings how much data the works load. */
  constructor(settings) {
    this.settings = settings
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
    return this.#keep(startPerkv(this.#directory(), ...flags))
  }

  #program(name, ...args) {
    return this.#keep(start([`${HERE}/${name}`, ...args]))
  }

  /** @returns the servers by their names; etcd is undefined where it is not installed. */
  async start(...names) {
    const starting = {
      perkv: () => this.perkv(),
      bare: () => this.#program('bare.mjs'),
      'one record': () => this.#program('one-record.mjs', this.#directory()),
      naive: () => this.#program('naive.mjs', this.#directory()),
      etcd: () => (hasEtcd ? this.#keep(startEtcd(this.#directory())) : undefined),
    }
    return Object.fromEntries(await Promise.all(names.map(async (name) => [name, await starting[name]()])))
  }

  /** @returns what calls a work of `raw.mjs`. */
  async raw() {
    return (await this.#keep(startWorker(`${HERE}/raw.mjs`, this.#directory()))).call
  }

  /** @param url of a server; a directory of its own without one. @returns what calls a work of `embedded.mjs`. */
  async db(url = this.#directory()) {
    return (await this.#keep(startWorker(`${HERE}/embedded.mjs`, url))).call
  }

  /** Operations of one request each, by wrk where it is installed. The warm-up is by autocannon, which looks into answers. */
  single(server, operation, { connections = this.settings.connections } = {}) {
    if (server === undefined) return undefined
    const order = { url: server.url, connections, operation }
    const warm = (seconds) => metered(server, () => cannon({ ...order, seconds }))
    if (!hasWrk) return warm
    const directory = this.#directory()
    return Object.assign((seconds) => metered(server, () => wrk({ ...order, seconds, directory })), { warm })
  }

  /** The same operation to several servers, or another one to those that `others` names. */
  singles(servers, operation, others = {}) {
    const contender = ([name, server]) => [name, this.single(server, others[name] ?? operation)]
    return Object.fromEntries(Object.entries(servers).map(contender))
  }

  /** Operations of several requests, or few and long ones; `weight`: what each counts. */
  load({ url, child }, operation, { connections = this.settings.connections, weight = 1 } = {}) {
    return (seconds) =>
      metered({ child }, async () => {
        const { rate, count, p99 } = await load({ url, connections, seconds, operation })
        return { rate: rate * weight, count: count * weight, p99 }
      })
  }

  async close() {
    await Promise.all(this.#servers.map(stop))
    for (const directory of this.#directories) removeDirectory(directory)
  }
}
