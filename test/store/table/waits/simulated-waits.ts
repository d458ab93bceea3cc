import type { WaitForEntry } from '../../../../src/errors/registry.js'
import { LeadingGraph } from '../../../../src/store/table/waits/leading-graph.js'
import { reportToLeader } from '../../../../src/store/table/waits/report-to-leader.js'
import type { WaitAnswer, WaitAsk } from '../../../../src/store/table/waits/wait-report.js'
import { WaitReports } from '../../../../src/store/table/waits/wait-reports.js'
import { waitCircle } from '../../../../src/store/wait-circle.js'
import { SimulatedProcess, World } from '../../../oracle/simulated-servers.js'
import { text, utf8 } from '../../support.js'

const KEYS = ['a', 'b', 'c', 'd', 'e', 'f']
/** Locks of transactions that have died with their server. */
const TTL_MS = 3000
const CALL_MS_MAX = 5
const ASK_MS_MAX = 1000
const LOOK_EVERY_MS = 10

interface Server {
  readonly url: string
  process: SimulatedProcess
  reports: WaitReports
  leading: LeadingGraph
  /** Whom it takes for the leader. */
  view: { readonly leader: string; readonly epoch: number }
}

interface Client {
  readonly process: SimulatedProcess
  startTs: number
}

/** Transactions of several servers that lock the same keys in any order, in simulated time: a table, and what the servers tell each other. */
export class SimulatedWaits {
  readonly world: World
  readonly servers: Server[] = []
  /** How often messages between servers get lost, and are sent twice. */
  faults = { loses: 0, repeats: 0 }
  committed = 0
  refused = 0
  /** Refusals of waits that closed no circle. */
  readonly wrong: string[] = []
  /** The longest that a circle has stood, in milliseconds. */
  oldestCircleMs = 0
  readonly #holders = new Map<string, number>()
  readonly #waits = new Map<number, WaitForEntry>()
  readonly #circles = new Map<string, number>()
  #timestamps = 0
  #epoch = 1
  readonly #clients = new Set<Client>()

  constructor(seed: number, count: number) {
    this.world = new World(seed)
    for (let i = 0; i < count; i++) this.servers.push({ url: `http://server-${i}` } as Server)
    for (const server of this.servers) this.#start(server)
    for (const server of this.servers) server.view = { leader: 'http://server-0', epoch: 1 }
    const look = (): void => {
      this.#look()
      this.world.after(LOOK_EVERY_MS, look)
    }
    look()
  }

  /** Clients that have not ended. */
  get running(): number {
    return this.#clients.size
  }

  #start(server: Server): void {
    const { world } = this
    const process = new SimulatedProcess(world)
    const epochOf = () => (server.view.leader === server.url ? server.view.epoch : undefined)
    const leading = new LeadingGraph(epochOf, () => world.nowMs)
    const send = reportToLeader({
      id: `${server.url} ${world.moment()}`,
      leading,
      role: () => ({ role: epochOf() === undefined ? 'follower' : 'leader', leader: server.view.leader }),
      ask: (url, ask) => this.#ask(process, url, ask),
    })
    const timer = (ms: number, call: () => void) => process.after(ms, call)
    Object.assign(server, { process, leading, reports: new WaitReports({ send, timer, nowMs: () => world.nowMs }) })
  }

  #ask(from: SimulatedProcess, url: string, ask: WaitAsk): Promise<WaitAnswer | 'not_leader'> {
    const { world, faults } = this
    return new Promise((resolve, reject) => {
      from.after(ASK_MS_MAX, () => reject(new Error('no answer')))
      const arrive = (): void => {
        const to = this.servers.find((server) => server.url === url)
        to?.process.reach(() => {
          const answer = to.leading.answer(ask)
          if (world.happens(faults.loses)) return
          world.after(world.between(0, CALL_MS_MAX), () =>
            from.reach(() => (answer === undefined ? reject(new Error('403')) : resolve(answer))),
          )
        })
      }
      if (!world.happens(faults.loses)) world.after(world.between(0, CALL_MS_MAX), arrive)
      if (world.happens(faults.repeats)) world.after(world.between(0, 4000), arrive)
    })
  }

  /** Another server leads. Each hears of it when it does, the earlier leader too. */
  lead(next: Server): void {
    const view = { leader: next.url, epoch: ++this.#epoch }
    for (const server of this.servers)
      this.world.after(server === next ? 0 : this.world.between(0, 2500), () => {
        if (server.view.epoch < view.epoch) server.view = view
      })
  }

  /** Its clients end with it, and the locks of their transactions go after their time. */
  kill(server: Server): void {
    const { process } = server
    process.isAlive = false
    for (const client of this.#clients)
      if (client.process === process) {
        this.#clients.delete(client)
        this.#waits.delete(client.startTs)
        this.world.after(TTL_MS, () => this.#release(client.startTs))
      }
    this.world.after(this.world.between(0, 2000), () => this.#start(server))
  }

  /** One transaction after another. What a dead process waits for never comes. */
  client({ process, reports }: Server, transactions: number): void {
    const client = { process, startTs: 0 }
    this.#clients.add(client)
    const work = async (): Promise<void> => {
      for (let done = 0; done < transactions; ) {
        client.startTs = ++this.#timestamps
        const isCommitted = await this.#transact(process, reports, client.startTs)
        this.#release(client.startTs)
        if (isCommitted) {
          done++
          this.committed++
        }
        await this.#sleep(process, this.world.between(0, 150))
      }
      this.#clients.delete(client)
    }
    void work()
  }

  async #transact(process: SimulatedProcess, reports: WaitReports, startTs: number): Promise<boolean> {
    const { world } = this
    const keys = [...KEYS].sort(() => world.random() - 0.5).slice(0, 2 + Math.floor(world.random() * 2))
    for (const key of keys) {
      let wait: { readonly holder: number; isRefused: boolean; readonly end: () => void } | undefined
      try {
        for (;;) {
          await this.#sleep(process, world.between(0, CALL_MS_MAX))
          const holder = this.#holders.get(key)
          if (holder === undefined) {
            this.#holders.set(key, startTs)
            break
          }
          if (wait?.holder !== holder) {
            wait?.end()
            wait = this.#wait(process, reports, { txn: startTs, waitForTxn: holder, key: utf8(key) })
          }
          for (let ms = world.between(5, 100); ms > 0 && !wait.isRefused; ms -= 5) await this.#sleep(process, 5)
          if (!wait.isRefused) continue
          this.refused++
          return false
        }
      } finally {
        wait?.end()
      }
    }
    await this.#sleep(process, world.between(0, 20))
    return true
  }

  #wait(process: SimulatedProcess, reports: WaitReports, entry: WaitForEntry) {
    const wait = { holder: entry.waitForTxn, isRefused: false, end: () => {} }
    const end = reports.begin(entry, async (circle) => {
      await this.#sleep(process, this.world.between(0, CALL_MS_MAX))
      if (!circle.every(({ key, waitForTxn }) => this.#holders.get(text(key)) === waitForTxn)) return
      const isReal = circle.every(({ txn, waitForTxn }) => this.#waits.get(txn)?.waitForTxn === waitForTxn)
      if (!isReal) this.wrong.push(JSON.stringify(circle.map(({ txn }) => txn)))
      wait.isRefused = true
    })
    this.#waits.set(entry.txn, entry)
    wait.end = () => {
      end()
      this.#waits.delete(entry.txn)
    }
    return wait
  }

  #release(startTs: number): void {
    for (const [key, holder] of this.#holders) if (holder === startTs) this.#holders.delete(key)
  }

  #sleep(process: SimulatedProcess, ms: number): Promise<void> {
    return new Promise((resolve) => process.after(ms, resolve))
  }

  /** Circles that stand now, and since when. */
  #look(): void {
    const { nowMs } = this.world
    const standing = new Set<string>()
    const held = (wait: WaitForEntry): boolean => this.#holders.get(text(wait.key)) === wait.waitForTxn
    const waitsOf = (txn: number): WaitForEntry[] => {
      const wait = this.#waits.get(txn)
      return wait !== undefined && held(wait) ? [wait] : []
    }
    for (const wait of this.#waits.values()) {
      const circle = held(wait) ? waitCircle(wait, waitsOf) : undefined
      if (circle !== undefined) standing.add(String(circle.map(({ txn }) => txn).sort((a, b) => a - b)))
    }
    for (const circle of this.#circles.keys()) if (!standing.has(circle)) this.#circles.delete(circle)
    for (const circle of standing) {
      const sinceMs = this.#circles.get(circle) ?? nowMs
      this.#circles.set(circle, sinceMs)
      this.oldestCircleMs = Math.max(this.oldestCircleMs, nowMs - sinceMs)
    }
  }
}
