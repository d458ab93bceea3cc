// The servers of one work, each started fresh on a directory of its own, and the loads on them.
import { load } from '../../harness/load.mjs'
import { startPerkv } from '../../harness/perkv.mjs'
import { isInstalled, makeDirectory, start, startWorker } from '../../harness/process.mjs'
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
  /** @param settings how much data the works load. */
  constructor(settings) {
    this.settings = settings
  }

  perkv(...flags) {
    return startPerkv(makeDirectory(), ...flags)
  }

  /** @returns the servers by their names; etcd is undefined where it is not installed. */
  async start(...names) {
    const starting = {
      perkv: () => this.perkv(),
      bare: () => start([`${HERE}/bare.mjs`]),
      'one record': () => start([`${HERE}/one-record.mjs`, makeDirectory()]),
      naive: () => start([`${HERE}/naive.mjs`, makeDirectory()]),
      etcd: () => (hasEtcd ? startEtcd(makeDirectory()) : undefined),
    }
    return Object.fromEntries(await Promise.all(names.map(async (name) => [name, await starting[name]()])))
  }

  /** @returns what calls a work of `raw.mjs`. */
  raw() {
    return startWorker(`${HERE}/raw.mjs`, makeDirectory()).call
  }

  /** @param url of a server; a directory of its own without one. @returns what calls a work of `embedded.mjs`. */
  db(url = makeDirectory()) {
    return startWorker(`${HERE}/embedded.mjs`, url).call
  }

  /** Operations of one request each, by wrk where it is installed. The warm-up is by autocannon, which looks into answers. */
  single(server, operation, { connections = this.settings.connections } = {}) {
    if (server === undefined) return undefined
    const order = { url: server.url, connections, operation }
    const warm = (seconds) => metered(server, () => cannon({ ...order, seconds }))
    if (!hasWrk) return warm
    const directory = makeDirectory()
    return Object.assign((seconds) => metered(server, () => wrk({ ...order, seconds, directory })), { warm })
  }

  /** The same operation to several servers, or another one to those that `others` names. */
  singles(servers, operation, others = {}) {
    const contender = ([name, server]) => [name, this.single(server, others[name] ?? operation)]
    return Object.fromEntries(Object.entries(servers).map(contender))
  }

  /** Operations of several requests, or few and long ones; `weight`: what each counts. @param how see `load` of the harness. */
  load({ url, child }, how, { connections = this.settings.connections, weight = 1 } = {}) {
    return (seconds) =>
      metered({ child }, async () => {
        const { rate, count, p99 } = await load({ url, connections, seconds, ...how })
        return { rate: rate * weight, count: count * weight, p99 }
      })
  }
}
