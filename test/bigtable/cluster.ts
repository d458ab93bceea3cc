import { expect } from 'vitest'
import { initTable } from '../../src/store/table/bigtable/format-admin.js'
import { openTable } from '../../src/store/table/bigtable/google-client.js'
import { printTableAddress } from '../../src/store/table/bigtable/table-address.js'
import { RECORD } from '../../src/store/table/layout/layout.js'
import { rowKeyOfSystem } from '../../src/store/table/layout/row-keys.js'
import type { Table } from '../../src/store/table/layout/table.js'
import { encodeSafePoint } from '../../src/store/table/rows/safe-point-record.js'
import type { Target } from '../anomalies/list-append-workload.js'
import type { Random } from '../anomalies/random.js'
import { CLI, runCli, type ServerProcess, startProcess } from '../process/server-process.js'
import { ownAddress, withHost } from './own-table.js'
import { plant } from './plant.js'

/** mutants.mjs names a build with a defect here. */
const PROGRAM = process.env['PERKV_TEST_CLI'] ?? CLI

/** A server that was stopped finds itself late, and would refuse requests for a moment. */
const UNSHED = ['--loop-delay-ms-max', '0']

export interface ClusterOptions {
  /** Of each server. */
  readonly args?: readonly string[]
  /** Milliseconds that the protocol of the safe point takes for a second. */
  readonly secondMs?: number
}

/** Old versions go after two or three seconds: a safe point is known to all within 600 ms, and a copy of it is stale after 300 ms. */
export const COLLECTING: ClusterOptions = { args: ['--gc-life-time', '2s', '--gc-interval', '500ms'], secondMs: 10 }

/** The table of a cluster, of any engine. */
interface ClusterTable {
  readonly address: string
  readonly env: Record<string, string>
  open(): Promise<Table>
}

interface Member {
  process: ServerProcess
  /** Fulfilled while it is there. */
  up: Promise<unknown>
}

interface Role {
  readonly role: 'leader' | 'follower' | 'candidate'
  readonly leader?: string
  readonly epoch: number
}

/** Servers on one table. As a target it is another one of them at each look. */
export class Cluster implements Target {
  kills = 0
  pauses = 0
  readonly #address: string
  readonly #args: readonly string[]
  readonly #env: Record<string, string>
  readonly #random: Random
  readonly #members: Member[] = []

  private constructor({ address, env }: ClusterTable, random: Random, args: readonly string[]) {
    this.#address = address
    this.#args = args
    this.#env = env
    this.#random = random
  }

  /** @param host of the emulator. */
  static async start(host: string, count: number, random: Random, options: ClusterOptions = {}): Promise<Cluster> {
    const address = ownAddress()
    await withHost(host, () => initTable(address, () => {}))
    const open = (): Promise<Table> => withHost(host, () => openTable(address))
    const env = { BIGTABLE_EMULATOR_HOST: host }
    return Cluster.startOn({ address: printTableAddress(address), env, open }, count, random, options)
  }

  /** @param table must exist. */
  static async startOn(
    table: ClusterTable,
    count: number,
    random: Random,
    options: ClusterOptions = {},
  ): Promise<Cluster> {
    const { args = [], secondMs } = options
    const cluster = new Cluster(table, random, args)
    if (secondMs !== undefined) await hurry(table, secondMs)
    // All at once, as after a deployment.
    const processes = await Promise.all(Array.from({ length: count }, () => cluster.#startOne('0')))
    cluster.#members.push(...processes.map((process) => ({ process, up: Promise.resolve() })))
    return cluster
  }

  #startOne(port: string): Promise<ServerProcess> {
    return startProcess(
      '-',
      ['--port', port, '--store', this.#address, '--log-level', 'error', ...UNSHED, ...this.#args],
      PROGRAM,
      this.#env,
    )
  }

  get urls(): readonly string[] {
    return this.#members.map(({ process }) => process.url)
  }
  get url(): string {
    return this.#random.pick(this.urls)
  }
  async isUp(): Promise<void> {
    await Promise.all(this.#members.map(({ up }) => up))
  }

  /** Each server's part in handing out the timestamps; undefined where it does not answer. */
  roles(): Promise<readonly (Role | undefined)[]> {
    return Promise.all(this.urls.map((url) => roleOf(url)))
  }

  /** What the present processes have removed: in collections, and beside commits. */
  async collected(): Promise<{ readonly versions: number; readonly trimmed: number }> {
    const texts = await Promise.all(this.urls.map(async (url) => (await fetch(`${url}/metrics`)).text()))
    const sum = (name: string): number =>
      texts.reduce((total, text) => total + Number(new RegExp(`^${name} (\\d+)`, 'm').exec(text)?.[1] ?? 0), 0)
    return {
      versions: sum('perkv_collection_removed_versions_total'),
      trimmed: sum('perkv_table_trimmed_records_total'),
    }
  }

  /** The server that says that it hands out the timestamps; undefined: none does at the moment. */
  async leader(): Promise<number | undefined> {
    const roles = await this.roles()
    const at = roles.findIndex((role) => role?.role === 'leader')
    return at === -1 ? undefined : at
  }

  /** kill -9, and a new process at the same address. */
  async restart(at: number): Promise<void> {
    const member = this.#members[at] as Member
    const again = async (): Promise<void> => {
      await member.process.stop('SIGKILL')
      member.process = await this.#startOne(new URL(member.process.url).port)
      this.kills++
    }
    member.up = again()
    await member.up
  }

  /** A clean stop, and a new process at the same address. */
  async replace(at: number): Promise<void> {
    const member = this.#members[at] as Member
    expect(await member.process.stop('SIGTERM')).toEqual({ code: 0, signal: null })
    member.process = await this.#startOne(new URL(member.process.url).port)
  }

  async kill(at: number): Promise<void> {
    await (this.#members[at] as Member).process.stop('SIGKILL')
  }

  pause(at: number, ms: number): Promise<void> {
    return this.pauseDuring(at, () => new Promise((resolve) => setTimeout(resolve, ms)))
  }

  async pauseDuring(at: number, body: () => Promise<void>): Promise<void> {
    const { process } = this.#members[at] as Member
    process.signal('SIGSTOP')
    this.pauses++
    await body()
    process.signal('SIGCONT')
  }

  /**
   * Kills servers, the one that hands out the timestamps and another one in turn, while one of those that are left stands still.
   * @param isOver asked before each kill.
   */
  async disturb(kills: number, random: Random, isOver: () => boolean): Promise<void> {
    const { length } = this.#members
    for (let i = 0; i < kills && !isOver(); i++) {
      const leader = (await this.leader()) ?? 0
      const killed = i % 2 === 0 ? leader : (leader + 1) % length
      await Promise.all([
        this.pause((killed + 1 + random.below(length - 1)) % length, 2500 + random.below(2500)),
        this.restart(killed),
      ])
    }
  }

  /** That `perkv store check` finds no damage; what killed servers leave behind is none. */
  async isSound(): Promise<void> {
    const { code, stdout, stderr } = await runCli(['store', 'check', this.#address], this.#env)
    expect({ code, stdout, stderr }).toMatchObject({ code: 0, stdout: expect.stringMatching(/\nsound\n$/), stderr: '' })
  }

  async end(): Promise<void> {
    await Promise.all(this.#members.map(({ process }) => process.stop('SIGKILL')))
  }
}

/** Servers find it in the row that they share, so that none goes by other times than the others. */
async function hurry({ open }: ClusterTable, secondMs: number): Promise<void> {
  const table = await open()
  const value = encodeSafePoint({ safePoint: 0, cleared: 0, secondMs })
  await plant(table, rowKeyOfSystem('safe-point'), [{ family: 'o', qualifier: RECORD, value }])
  await table.close()
}

async function roleOf(url: string): Promise<Role | undefined> {
  try {
    const status = (await (await fetch(`${url}/v1/status`, { signal: AbortSignal.timeout(1000) })).json()) as {
      oracle: Role
    }
    return status.oracle
  } catch {
    return undefined // It is stopped, or starts.
  }
}
