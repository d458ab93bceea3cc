import { KvError } from '../errors/kv-error.js'
import { backgroundTimer } from '../event-loop/background-timer.js'
import { TIMESTAMP_MAX, type Timestamp } from '../timestamp.js'
import { FreshRuns } from './fresh-runs.js'
import { JobLease, type Timer } from './job-lease.js'
import type { Job, KnownServer, ReachableServer, Registry } from './registry.js'
import type { RegistryName, RegistryRows } from './registry-rows.js'
import { decodeJob, decodeServer, encodeServer, type ServerRecord } from './server-record.js'
import { isSame, type Sighting, Sightings } from './sightings.js'

const BEAT_MS = 2000
/** With more servers each waits longer between two looks: all of them read all rows. */
const LOOK_MS_PER_SERVER = 20
const LOOK_MS_MAX = 10_000
/** Far below the time after which a server counts as dead, so that others follow a lost beat. */
const CALL_MS_MAX = 4000
/** Attempts of a write that a caller waits for. A beat has one: the next beat follows. */
const TRIES_MAX = 3
/** Changes of a row after which another server with the URL of this one is known to be alive. */
const TWIN_CHANGES = 2

export interface TableRegistryOptions {
  readonly rows: RegistryRows
  /** Unique, also among earlier runs. */
  readonly id: string
  /** Where the other servers reach this one. */
  readonly url: string
  /** The newest format of the table that this server knows. */
  readonly format: number
  /** Milliseconds of this process' monotonic clock. */
  readonly elapsedMs: () => number
  /** What the row says of the leader of the timestamps. Called before each beat. */
  readonly ofLeader?: (() => Pick<ServerRecord, 'unreachedEpoch' | 'knowsTime'>) | undefined
  /** Called when another living server, which was there first or joined at once with this one, has its URL. */
  readonly onTwin?: ((id: string) => void) | undefined
  /** Default `backgroundTimer`. */
  readonly timer?: Timer | undefined
}

/** The servers of one table, with a row for each. README.md in this folder argues why this is correct. */
export class TableRegistry implements Registry {
  readonly isShared = true
  readonly id: string
  readonly #rows: RegistryRows
  readonly #url: string
  readonly #format: number
  readonly #elapsedMs: () => number
  readonly #timer: Timer
  readonly #name: RegistryName
  readonly #ofLeader: () => Pick<ServerRecord, 'unreachedEpoch' | 'knowsTime'>
  readonly #onTwin: (id: string) => void
  /** Rows with the URL of this server that were there when it had joined, and how often they were seen to change. */
  #twins: ReadonlyMap<RegistryName, { readonly bytes: Uint8Array; readonly changes: number }> = new Map()
  #hasJoined = false
  readonly #sightings = new Sightings()
  readonly #looks = new FreshRuns(() => this.#lookNow())
  readonly #writes = new FreshRuns(() => this.#write())
  #oldest: (() => Timestamp) | undefined
  /** See `announce`. */
  #safePoint: Timestamp = 0
  #beat = 0
  /** The server's own row, as far as this process knows; undefined: it has none. */
  #own: Uint8Array | undefined
  #stopBeat: () => void = () => {}
  #stopLook: () => void = () => {}
  /** The last beat and the last look. Never reject. */
  #beating: Promise<unknown> = Promise.resolve()
  #looking: Promise<unknown> = Promise.resolve()
  #isClosed = false
  readonly #jobs = new Set<Job>()
  #jobBeat = 0

  constructor({ rows, id, url, format, elapsedMs, timer = backgroundTimer, ...options }: TableRegistryOptions) {
    this.id = id
    this.#ofLeader = options.ofLeader ?? (() => ({ unreachedEpoch: 0, knowsTime: false }))
    this.#onTwin = options.onTwin ?? (() => {})
    this.#url = url
    this.#format = format
    this.#elapsedMs = elapsedMs
    this.#timer = timer
    this.#name = `server/${id}`
    this.#rows = {
      list: () => this.#within(rows.list()),
      read: (name) => this.#within(rows.read(name)),
      swap: (name, expected, next) => this.#within(rows.swap(name, expected, next)),
    }
  }

  async join(oldest: () => Timestamp): Promise<void> {
    this.#oldest = oldest
    await this.publish()
    await this.#look() // After the row was written: of two servers that join at once, one at least sees the other.
    this.#hasJoined = true
    this.#scheduleBeat()
    this.#scheduleLook()
  }

  /** Removes the row, so that the others need not wait until this server counts as dead. */
  async leave(): Promise<void> {
    if (this.#isClosed) return
    this.#isClosed = true
    this.#stopBeat()
    this.#stopLook()
    await Promise.all([this.#beating, this.#looking])
    try {
      for (let tries = 0; tries < TRIES_MAX && this.#own !== undefined; tries++) {
        const swapped = await this.#rows.swap(this.#name, this.#own, undefined)
        this.#own = swapped === 'done' ? undefined : await this.#rows.read(this.#name)
      }
    } catch {
      // The row is removed by another server after a while.
    }
  }

  // ---- The own row

  #scheduleBeat(): void {
    this.#stopBeat = this.#timer(BEAT_MS, () => {
      this.#beating = this.#writes
        .run()
        .catch(() => {}) // The next beat tries again.
        .then(() => {
          if (!this.#isClosed) this.#scheduleBeat()
        })
    })
  }

  async publish(): Promise<void> {
    for (let tries = 1; ; tries++)
      try {
        return await this.#writes.run()
      } catch (error) {
        if (tries === TRIES_MAX) throw error
      }
  }

  /** Writes the row; creates it again when this server has stalled and finds it gone. */
  async #write(): Promise<void> {
    if (this.#oldest === undefined) throw new Error('the server has not joined')
    if (this.#isClosed) throw unavailable('this server is stopping')
    const { unreachedEpoch, knowsTime } = this.#ofLeader()
    const next = encodeServer({
      url: this.#url,
      oldest: this.#oldest(),
      safePoint: this.#safePoint,
      unreachedEpoch,
      knowsTime,
      format: this.#format,
      beat: ++this.#beat,
    })
    for (let tries = 0; tries < 2; tries++) {
      const swapped = await this.#rows.swap(this.#name, this.#own, next)
      this.#own = swapped === 'done' ? next : await this.#rows.read(this.#name)
      if (this.#own !== undefined && isSame(this.#own, next)) return
    }
    throw unavailable('the row of this server changes under its hands')
  }

  async announce(safePoint: Timestamp): Promise<void> {
    this.#safePoint = safePoint
    await this.publish()
  }

  // ---- The rows of the others

  #scheduleLook(): void {
    const pauseMs = Math.min(LOOK_MS_MAX, BEAT_MS + LOOK_MS_PER_SERVER * this.servers().length)
    this.#stopLook = this.#timer(pauseMs, () => {
      this.#looking = this.#look()
        .then(() => this.#forgetDead())
        .catch(() => {}) // The next look tries again.
        .then(() => {
          if (!this.#isClosed) this.#scheduleLook()
        })
    })
  }

  /** Looks at the rows before `join`, for `others`. @throws KvError `storage_unavailable` */
  look(): Promise<void> {
    return this.#look()
  }

  #look(): Promise<void> {
    return this.#looks.run()
  }

  async #lookNow(): Promise<void> {
    const beganMs = this.#elapsedMs()
    const rows = await this.#rows.list()
    this.#sightings.note(rows, beganMs, this.#elapsedMs())
    this.#noteTwins(rows)
  }

  /**
   * A row that an earlier run of this server has left does not change, or once, by a beat that lands late. So a row that was there
   * when this server joined, and changes twice, is of another process that is alive.
   */
  #noteTwins(rows: ReadonlyMap<RegistryName, Uint8Array>): void {
    const twins = new Map<RegistryName, { readonly bytes: Uint8Array; readonly changes: number }>()
    for (const [name, bytes] of rows) {
      const before = this.#twins.get(name)
      if (!isServer(name) || name === this.#name || (before === undefined && this.#hasJoined)) continue
      if (decodeServer(bytes)?.url !== this.#url) continue
      const changes = (before?.changes ?? 0) + (before === undefined || isSame(before.bytes, bytes) ? 0 : 1)
      if (changes === TWIN_CHANGES && before?.changes !== changes) this.#onTwin(idOf(name))
      twins.set(name, { bytes, changes })
    }
    this.#twins = twins
  }

  /** One of the servers is the first; the attempts of others are refused. */
  async #forgetDead(): Promise<void> {
    for (const [name, { isDead, bytes }] of [...this.#sightings])
      if (isDead && name !== this.#name) await this.#rows.swap(name, bytes, undefined)
  }

  servers(): readonly KnownServer[] {
    const nowMs = this.#elapsedMs()
    const known: KnownServer[] = []
    for (const [name, { bytes, sinceMs, isDead }] of this.#sightings) {
      const url = isServer(name) && !isDead ? decodeServer(bytes)?.url : undefined
      if (url !== undefined) known.push({ id: idOf(name), url, silentMs: Math.max(0, Math.round(nowMs - sinceMs)) })
    }
    return known.sort((a, b) => (a.id < b.id ? -1 : 1))
  }

  async find(id: string): Promise<ReachableServer | undefined> {
    const sighting = this.#sightings.get(`server/${id}`) ?? (await this.#readServer(`server/${id}`))
    const url = sighting && decodeServer(sighting.bytes)?.url
    return sighting === undefined || sighting.isDead || url === undefined
      ? undefined
      : { url, gone: sighting.gone.signal }
  }

  /** Reads a server that has joined since the last look. */
  async #readServer(name: RegistryName): Promise<Sighting | undefined> {
    const bytes = await this.#rows.read(name)
    return bytes && this.#sightings.add(name, bytes, this.#elapsedMs())
  }

  async oldest(): Promise<Timestamp> {
    let oldest = TIMESTAMP_MAX
    for (const record of await this.#others()) oldest = Math.min(oldest, record.oldest)
    return oldest
  }

  async announced(): Promise<Timestamp> {
    let highest = 0
    for (const { safePoint } of await this.#others()) highest = Math.max(highest, safePoint)
    return highest
  }

  /** The other servers that are not known to be dead, as the last look has shown them; without an earlier run of this one. */
  others(): readonly (ServerRecord & { readonly isAlive: boolean })[] {
    const others: (ServerRecord & { readonly isAlive: boolean })[] = []
    for (const [name, { bytes, isDead, hasChanged }] of this.#sightings) {
      const record = isServer(name) && name !== this.#name && !isDead ? decodeServer(bytes) : undefined
      if (record !== undefined && record.url !== this.#url) others.push({ ...record, isAlive: hasChanged })
    }
    return others
  }

  async #others(): Promise<readonly ServerRecord[]> {
    await this.#look()
    const records: ServerRecord[] = []
    for (const [name, { bytes, isDead }] of this.#sightings) {
      if (!isServer(name) || name === this.#name || isDead) continue
      const record = decodeServer(bytes)
      if (record === undefined) throw unavailable(`the row of the server ${idOf(name)} is damaged`)
      records.push(record)
    }
    return records
  }

  // ---- Jobs

  async lead<T>(job: Job, body: (signal: AbortSignal) => Promise<T>): Promise<T | undefined> {
    if (this.#jobs.has(job)) return undefined
    this.#jobs.add(job)
    try {
      const lease = await this.#take(job)
      if (lease === undefined) return undefined
      try {
        if (lease.signal.aborted) return undefined // This server has stalled since it wrote the row.
        return await body(lease.signal)
      } finally {
        await lease.release()
        this.#jobBeat = Math.max(this.#jobBeat, lease.beat) // Another job may have run longer.
      }
    } finally {
      this.#jobs.delete(job)
    }
  }

  async #take(job: Job): Promise<JobLease | undefined> {
    const name: RegistryName = `job/${job}`
    await this.#look()
    const held = this.#sightings.get(name)
    if (held !== undefined && !held.isDead && decodeJob(held.bytes)?.id !== this.id) return undefined
    const options = { rows: this.#rows, name, id: this.id, timer: this.#timer, elapsedMs: this.#elapsedMs }
    return JobLease.take(options, held, ++this.#jobBeat)
  }

  /** Limits a call: the table's own time limit is longer than a beat may wait. */
  #within<T>(call: Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      const stop = this.#timer(CALL_MS_MAX, () => reject(unavailable('the table does not answer')))
      call.then(resolve, reject).finally(stop)
    })
  }
}

function isServer(name: RegistryName): boolean {
  return name.startsWith('server/')
}

function idOf(name: RegistryName): string {
  return name.slice('server/'.length)
}

function unavailable(why: string): KvError<'storage_unavailable'> {
  return new KvError('storage_unavailable', `the servers of the table: ${why}`, {})
}
