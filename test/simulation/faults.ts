import type { Random } from '../anomalies/random.js'

export type FaultKind =
  | 'request_lost'
  | 'answer_lost'
  | 'call_late'
  | 'call_duplicated'
  | 'link_cut'
  | 'coordinator_died'
  | 'server_killed'
  | 'machine_crashed'
  | 'server_stopped'
  | 'write_failed'
  | 'write_failed_but_landed'
  | 'fsync_failed'
  | 'read_failed'
  | 'no_room'
  | 'reopen_failed'
  | 'clock_forward'
  | 'clock_back'
  | 'clock_far_forward'
  | 'server_paused'
  | 'table_lost'
  | 'table_answer_lost'
  | 'table_late'
  | 'table_twice'
  | 'table_failed'
  | 'post_lost'

export const STORES = ['leveldb', 'shared'] as const
export type StoreName = (typeof STORES)[number]

/** Events of a world. Those of a table are more. */
export const STEPS_DEFAULT: Readonly<Record<StoreName, number>> = { leveldb: 2000, shared: 5000 }

/** What one seed's world is like. Each fault is left out in some worlds: too many at once hide each other's effects. */
export interface Profile {
  /** `shared`: several servers on one table. */
  readonly store: StoreName
  readonly servers: number
  /** Of several servers: a second of what they wait for before they collect. */
  readonly safePointSecondMs: number
  /** The same: whether rows of the table change together, and after how long its transactions end of which nothing is heard. */
  readonly changesTogether: boolean
  readonly idleMs: number
  /** The same: see `HintedCells.registeringMs`. */
  readonly registeringMs: number
  /** The same: how a server stands still at most, and of the logs of servers. */
  readonly pausesMs: readonly number[]
  readonly logs: { readonly beatMs: number; readonly chunkEntriesMax: number }
  readonly durability: 'sync' | 'async'
  readonly coordinators: number
  /** Worlds that begin slowly, or have to last, have more events than others. */
  readonly stepsFactor: number
  readonly keys: number
  /** Keys and values of one prewrite; small, so that a transaction has several. */
  readonly batchBytes: number
  readonly asyncCommitKeysMax: number
  readonly cacheBytesMax: number
  /** 0: all look-ups are asynchronous. See `LookUps`. */
  readonly lookUpSlowMs: number
  /** Of one hop of a call; most take much less. */
  readonly hopMsMax: number
  /** Of one operation of the engine, or one way of a call of the table; most take much less. */
  readonly diskMsMax: number
  /** Between two things that a coordinator does. */
  readonly thinkMsMax: number
  /** Whether there are observers, and workers. */
  readonly observes: boolean
  readonly observers: {
    readonly maxAttempts: number
    readonly backoffMs: number
    readonly backoffMaxMs: number
    readonly maxDepth: number
    readonly leaseMsMax: number
    /** Ready cells that a dispatcher knows; the others it has to find. */
    readonly readyMax: number
    readonly claimsMax: number
  }
  /** Whether some puts expire. */
  readonly expires: boolean
  /** Whether clients follow the changes, write by raw calls, and remove ranges. */
  readonly feeds: boolean
  readonly feed: {
    /** Of `Changes`: small ones end rings, groups and pages early. */
    readonly feedBytesMax: number
    readonly pageBytesMax: number
    /** Ranges of more keys than one batch removes. */
    readonly isBulky: boolean
  }
  /** Whether clients work under leases. */
  readonly holdsLeases: boolean
  /** Where there are leases, in a busy process: by so much at most. */
  readonly timersLateMsMax: number
  /** The worker leaves pins readable; whoever collects by hand does not. */
  readonly collects: 'worker' | 'by hand'
  /** Per call, per engine operation or per step, as the fault is. */
  readonly chances: Readonly<Record<FaultKind, number>>
}

const FAULTS_OF_SHARED = {
  server_paused: 0,
  table_lost: 0,
  table_answer_lost: 0,
  table_late: 0,
  table_twice: 0,
  table_failed: 0,
  post_lost: 0,
}

export function drawProfile(random: Random, store: StoreName): Profile {
  const profile = drawAlone(random, store)
  if (store !== 'shared') return profile
  return { ...drawShared(random, profile), changesTogether: random.chance(0.5), idleMs: random.pick([500, 5000]) }
}

/** No machine takes anything with it. */
function drawShared(random: Random, profile: Profile): Profile {
  const some = (chanceMax: number): number => (random.chance(0.6) ? chanceMax * random.next() ** 2 : 0)
  const chances = {
    ...{ ...profile.chances, machine_crashed: 0, clock_far_forward: 0 },
    server_paused: some(0.01),
    table_lost: some(0.05),
    table_answer_lost: some(0.05),
    table_late: some(0.05),
    table_twice: some(0.1),
    table_failed: some(0.03),
    post_lost: some(0.05),
  }
  const shared = {
    ...profile,
    servers: 3,
    safePointSecondMs: random.pick([50, 200]),
    registeringMs: random.pick([100, 4000]),
    chances,
  }
  if (!profile.feeds || random.chance(0.35)) return { ...shared, feeds: false }
  // Logs of servers that stand still are ended after 20 s: there is less of everything else, so that the world lasts for long.
  const { observes, holdsLeases } = profile
  return {
    ...shared,
    coordinators: profile.coordinators + 2,
    stepsFactor: 2,
    safePointSecondMs: random.pick([500, 1000]),
    observes: observes && random.chance(0.2),
    holdsLeases: holdsLeases && random.chance(0.2),
    chances: { ...chances, server_killed: chances.server_killed / 4, server_paused: chances.server_paused / 4 },
    pausesMs: [1000, 30_000, 150_000],
    logs: { beatMs: random.pick([250, 1000]), chunkEntriesMax: random.pick([3, 20, 256]) },
  }
}

function drawAlone(random: Random, store: StoreName): Profile {
  const durability = random.chance(0.8) || store !== 'leveldb' ? 'sync' : 'async'
  const some = (chanceMax: number): number => (random.chance(0.6) ? chanceMax * random.next() ** 2 : 0)
  const chances = {
    ...FAULTS_OF_SHARED,
    request_lost: some(0.15),
    answer_lost: some(0.15),
    call_late: some(0.1),
    call_duplicated: some(0.15),
    link_cut: some(0.05),
    coordinator_died: some(0.01),
    server_killed: some(0.008),
    machine_crashed: some(0.004),
    server_stopped: some(0.002),
    write_failed: some(0.03),
    write_failed_but_landed: some(0.06),
    fsync_failed: some(0.02),
    read_failed: some(0.01),
    no_room: some(0.9),
    reopen_failed: some(0.7),
    clock_forward: some(0.01),
    // An fsync is what keeps the oracle's mark, and the mark is what a clock that was set back is held against.
    clock_back: durability === 'sync' ? some(0.005) : 0,
    clock_far_forward: durability === 'sync' ? some(0.003) : 0,
  }
  return {
    store,
    servers: 1,
    safePointSecondMs: 1000,
    changesTogether: false,
    idleMs: 0,
    registeringMs: 4000,
    pausesMs: [30_000],
    logs: { beatMs: 250, chunkEntriesMax: 256 },
    durability,
    coordinators: 2 + random.below(5),
    stepsFactor: 1,
    keys: 2 + random.below(9),
    batchBytes: random.pick([1, 1, 20, 400, 16 * 1024]),
    asyncCommitKeysMax: random.pick([0, 3, 256, 256]),
    cacheBytesMax: random.pick([0, 2000, 64 * 1024 * 1024]),
    lookUpSlowMs: random.pick([0, 0.2]),
    hopMsMax: random.pick([1, 3, 10, 100, 1500]),
    diskMsMax: random.pick([1, 3, 30, 300]),
    thinkMsMax: random.pick([1, 50, 500]),
    collects: random.chance(0.5) ? 'worker' : 'by hand',
    observes: random.chance(0.7),
    observers: {
      maxAttempts: random.pick([0, 1, 2, 5]),
      backoffMs: random.pick([0, 10, 200]),
      backoffMaxMs: random.pick([50, 2000]),
      maxDepth: random.pick([0, 1, 3, 64]),
      leaseMsMax: random.pick([1, 300, 10_000]),
      readyMax: random.pick([1, 2, 4096]),
      claimsMax: random.pick([2, 2, 100_000]),
    },
    chances,
    feeds: random.chance(0.6),
    expires: random.chance(0.6),
    feed: {
      feedBytesMax: random.pick([300, 3000, 4 * 1024 * 1024]),
      pageBytesMax: random.pick([100, 1000, 1024 * 1024]),
      isBulky: random.chance(0.2),
    },
    // Without an fsync a crash takes grants with it.
    holdsLeases: random.chance(0.5) && durability === 'sync',
    timersLateMsMax: random.pick([0, 0, 500]),
  }
}

/** Decides what goes wrong, and counts it. */
export class Faults {
  readonly counts = new Map<FaultKind, number>()
  #isHealed = false

  constructor(
    readonly random: Random,
    readonly profile: Profile,
  ) {}

  /** From now on nothing goes wrong. */
  heal(): void {
    this.#isHealed = true
  }

  strikes(kind: FaultKind): boolean {
    const chance = this.profile.chances[kind]
    if (this.#isHealed || chance === 0 || !this.random.chance(chance)) return false
    this.counts.set(kind, (this.counts.get(kind) ?? 0) + 1)
    return true
  }

  /** By so much a timer comes too late. */
  timerLateMs(): number {
    const { holdsLeases, timersLateMsMax } = this.profile
    return holdsLeases && timersLateMsMax > 0 && !this.#isHealed ? timersLateMsMax * this.random.next() ** 2 : 0
  }

  /** Of one hop of a call: short mostly, and now and then long. */
  hopMs(): number {
    const { hopMsMax } = this.profile
    return this.random.chance(0.4) ? 0 : hopMsMax * this.random.next() ** 4
  }
}
