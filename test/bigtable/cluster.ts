import { expect } from 'vitest'
import { printTableAddress } from '../../src/store/bigtable/table-address.js'
import type { Target } from '../anomalies/list-append-workload.js'
import type { Random } from '../anomalies/random.js'
import { CLI, runCli, type ServerProcess, startProcess } from '../process/server-process.js'
import { ownAddress } from './own-table.js'

/** mutants.mjs names a build with a defect here. */
const PROGRAM = process.env['PERKV_TEST_CLI'] ?? CLI

/** A server that was stopped finds itself late, and would refuse requests for a moment. */
const UNSHED = ['--loop-delay-ms-max', '0']

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
  readonly #env: Record<string, string>
  readonly #random: Random
  readonly #members: Member[] = []

  private constructor(address: string, host: string, random: Random) {
    this.#address = address
    this.#env = { BIGTABLE_EMULATOR_HOST: host }
    this.#random = random
  }

  /** @param host of the emulator. */
  static async start(host: string, count: number, random: Random): Promise<Cluster> {
    const cluster = new Cluster(printTableAddress(ownAddress()), host, random)
    const made = await runCli(['bigtable', 'init', cluster.#address], cluster.#env)
    expect(made).toMatchObject({ code: 0, stderr: '' })
    // All at once, as after a deployment.
    const processes = await Promise.all(Array.from({ length: count }, () => cluster.#startOne('0')))
    cluster.#members.push(...processes.map((process) => ({ process, up: Promise.resolve() })))
    return cluster
  }

  #startOne(port: string): Promise<ServerProcess> {
    return startProcess(
      '-',
      ['--port', port, '--store', this.#address, '--log-level', 'error', ...UNSHED],
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

  async pause(at: number, ms: number): Promise<void> {
    const { process } = this.#members[at] as Member
    process.signal('SIGSTOP')
    this.pauses++
    await new Promise((resolve) => setTimeout(resolve, ms))
    process.signal('SIGCONT')
  }

  async end(): Promise<void> {
    await Promise.all(this.#members.map(({ process }) => process.stop('SIGKILL')))
  }
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
