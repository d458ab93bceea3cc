import { encodeConsumer } from '../../../../src/changes/rules/codec/consumer.js'
import { Coordinator } from '../../../../src/coordinator/coordinator.js'
import { AttachedKeys } from '../../../../src/leases/attached-keys.js'
import { encodeLease } from '../../../../src/leases/rules/codec/lease.js'
import { DEFAULT_LIMITS } from '../../../../src/limits.js'
import type { PrewriteMutation } from '../../../../src/percolator/api.js'
import { attachedKey } from '../../../../src/percolator/codec/attached-key.js'
import { packRecord } from '../../../../src/percolator/codec/record.js'
import { reservedKey } from '../../../../src/percolator/codec/reserved-key.js'
import { CELL_KINDS } from '../../../../src/store/cell-names.js'
import { openLevelDb } from '../../../../src/store/leveldb/directory/open-level-db.js'
import { openLevelDbStore } from '../../../../src/store/leveldb/leveldb-store.js'
import type { CompleteStore, Store } from '../../../../src/store/store.js'
import type { SystemName } from '../../../../src/store/system-records.js'
import { TIMESTAMP_MAX, type Timestamp } from '../../../../src/timestamp.js'
import { commitOptionsOf } from '../../../../src/txn/commit-options.js'
import type { Random } from '../../../anomalies/random.js'
import { del, prewriteOf, put, START_MS, text, utf8, write } from '../../support.js'

export const LOCKED = '(locked)'
export const ABSENT = '(absent)'
export const REFUSED = '(below the safe point)'

interface Version {
  readonly commitTs: Timestamp
  /** undefined: deleted. */
  readonly value: string | undefined
}

/** What a database has to answer. */
export class Model {
  /** Newest first. */
  readonly versions = new Map<string, readonly Version[]>()
  /** All that were ever written. */
  readonly keys = new Set<string>()
  /** By key: start_ts. */
  readonly locks = new Map<string, Timestamp>()
  /** Leases in force: their fences. */
  readonly leases = new Map<string, Timestamp>()
  /** By key: the fence that its newest version is attached to. */
  readonly attached = new Map<string, Timestamp>()
  /** Observers and their cells. */
  system: ReadonlyMap<SystemName, string> = new Map()
  safePoint: Timestamp = 0
  /** Above every timestamp in the database. */
  newestTs: Timestamp = 0

  read(key: string, ts: Timestamp): string {
    if (ts < this.safePoint) return REFUSED
    const startTs = this.locks.get(key)
    if (startTs !== undefined && startTs <= ts) return LOCKED
    return this.versions.get(key)?.find(({ commitTs }) => commitTs <= ts)?.value ?? ABSENT
  }

  newestCommit(key: string): Timestamp {
    return this.versions.get(key)?.[0]?.commitTs ?? 0
  }

  /** Where the answers for a key may change. */
  timesOf(key: string): Timestamp[] {
    const times = (this.versions.get(key) ?? []).flatMap(({ commitTs }) => [commitTs - 1, commitTs])
    return [...times.filter((ts) => ts >= this.safePoint), this.newestTs]
  }

  add(key: string, version: Version, leaseFence: Timestamp = 0): void {
    this.keys.add(key)
    if (leaseFence === 0) this.attached.delete(key)
    else this.attached.set(key, leaseFence)
    this.versions.set(key, [version, ...(this.versions.get(key) ?? [])])
  }

  /** The newest values alone, of all keys. */
  present(): string {
    const present = [...this.versions].flatMap(([key, [newest]]) => (newest?.value ? [`${key} ${newest.value}`] : []))
    return present.sort().join('\n')
  }
}

/** Versions that expire then are there in all tests, also where the clock is far ahead. */
const FAR_TS = TIMESTAMP_MAX - 2000

export interface RandomDatabase {
  readonly model: Model
  /** As it was after each of the last batches, whose end the log may lose. */
  readonly presents: readonly string[]
}

export interface RandomDatabaseOptions {
  readonly keys?: number
  readonly rounds?: number
  readonly txns?: number
  /** Of the server that writes. */
  readonly nowMs?: number
}

/**
 * Writes a database with a history: puts, some of which expire one day, deletions, values short and long, rollbacks, locks that stay, outcomes, pins,
 * collections, ranges that are deleted; observers whose cells are dirty, acknowledged, failed and parked; in tables on some levels, compressed or not, and in a log.
 */
export async function writeRandomDatabase(
  directory: string,
  random: Random,
  { keys: keyCount = 150, rounds = 4, txns = 40, nowMs = START_MS }: RandomDatabaseOptions = {},
): Promise<RandomDatabase> {
  const model = new Model()
  const keys = Array.from({ length: keyCount }, (_, i) => `key/${String(i).padStart(4, '0')}`)
  const presents: string[] = []
  let ms = nowMs
  for (let round = 0; round < rounds; round++) {
    const store = await openLevelDbStore({
      directory,
      durability: 'async',
      now: () => ms,
      openEngine: (path) => openLevelDb(path, undefined, { compression: round % 2 === 0 ? 'none' : 'snappy' }),
    })
    presents.splice(0, presents.length, model.present())
    await registerObservers(store)
    store.leases.listen({
      fencesAt: (names) => names.map((name) => model.leases.get(name) ?? 0),
      attaches: async () => {},
    })
    for (let i = 0; i < txns; i++) {
      ms += random.below(20)
      await step(store, model, random, keys)
      if (random.chance(0.3)) await runObservers(store, random)
      presents.push(model.present())
      if (random.chance(0.15)) await changeLease(store, model, random)
      presents.push(model.present())
    }
    await write(store, await store.tso(1), await store.tso(1), [
      { op: 'put', key: reservedKey(utf8(`outcome/request ${round}`)), value: packRecord([round, round, round]) },
    ])
    await store.system.write([{ name: 'expiry/cursor', value: packRecord([await store.tso(1)]) }])
    await writeConsumer(store)
    if (random.chance(0.3) && round < rounds - 1) await collect(store, model)
    if (round === rounds - 1) await leaveLocks(store, model, random, keys, presents)
    model.newestTs = await store.tso(1)
    model.system = await observersIn(store)
    await store.close()
    if (!random.chance(0.3)) continue
    const engine = await openLevelDb(directory)
    await engine.compactRange(Buffer.alloc(0), Buffer.alloc(8, 0xff))
    await engine.close()
  }
  return { model, presents }
}

async function step(store: CompleteStore, model: Model, random: Random, keys: readonly string[]): Promise<void> {
  const chosen = random.shuffled(keys).slice(0, 1 + random.below(8))
  const startTs = await store.tso(1)
  const valueFor = (key: string): string => {
    const value = `${key} at ${startTs} `
    return random.chance(0.1) ? value.repeat(10 + random.below(60)) : value
  }
  const written = new Map(chosen.map((key) => [key, random.chance(0.15) ? undefined : valueFor(key)]))
  const [lease, fence] = random.chance(0.4) && model.leases.size > 0 ? random.pick([...model.leases]) : ['', 0]
  const mutations = [...written].flatMap(([key, value]): PrewriteMutation | PrewriteMutation[] => {
    if (value === undefined) return del(key)
    const row = { op: 'put', key: attachedKey(fence, utf8(key)), value: new Uint8Array() } as const
    if (fence !== 0) return [{ ...put(key, value), leaseFence: fence }, row]
    return random.chance(0.3) ? { ...put(key, value), expireTs: FAR_TS + random.below(1000) } : put(key, value)
  })
  const commitEffects = fence === 0 ? undefined : { leases: [{ lease, fence }] }
  const dice = fence === 0 ? random.below(20) : 19
  if (dice === 0) return store.rollback({ keys: chosen.map(utf8), startTs }).then(() => {})
  if (dice === 1) {
    await store.prewrite(prewriteOf(startTs, mutations))
    return store.rollback({ keys: chosen.map(utf8), startTs }).then(() => {})
  }
  if (dice === 2 && random.chance(0.4)) {
    const [start, end] = [...random.shuffled(keys).slice(0, 2)].sort() as [string, string]
    await store.deleteRange({ start: utf8(start), end: utf8(end) })
    for (const key of model.versions.keys())
      if (key >= start && key < end) {
        model.versions.delete(key)
        model.attached.delete(key)
      }
    return
  }
  let commitTs: Timestamp
  if (random.chance(0.5)) {
    commitTs =
      (await store.prewrite(prewriteOf(startTs, mutations, { tryOnePc: true, commitEffects }))).onePcCommitTs ?? 0
  } else if (fence !== 0) {
    commitTs =
      (await store.prewrite(prewriteOf(startTs, mutations, { tryOnePc: true, commitEffects }))).onePcCommitTs ?? 0
  } else {
    await store.prewrite(prewriteOf(startTs, mutations))
    commitTs = await store.tso(1)
    await store.commit({ keys: chosen.map(utf8), startTs, commitTs })
  }
  for (const [key, value] of written) model.add(key, { commitTs, value }, value === undefined ? 0 : fence)
}

/** Grants a lease, or ends one, which deletes the keys that are attached to it. */
async function changeLease(store: Store, model: Model, random: Random): Promise<void> {
  const name = random.pick(['leader', 'worker'])
  const fence = model.leases.get(name)
  const record: SystemName = `lease/${name}`
  if (fence === undefined) {
    const granted = await store.tso(1)
    const lease = { holder: 'me', ttlMs: 1000, fence: granted, state: 'held', endsTs: 0, hasKeys: false } as const
    await store.system.write([{ name: record, value: encodeLease(lease) }])
    model.leases.set(name, granted)
    return
  }
  model.leases.delete(name)
  await attachedKeysOf(store).end(fence)
  await store.system.write([{ name: record, value: undefined }])
  for (const [key, attachedTo] of [...model.attached]) {
    if (attachedTo !== fence) continue
    const [deletion] = (await store.mvccGetByKey({ key: utf8(key) })).writes
    model.add(key, { commitTs: deletion?.commitTs ?? 0, value: undefined })
  }
}

async function writeConsumer(store: Store): Promise<void> {
  const ts = await store.tso(1)
  const consumer = { id: ts, name: 'reader', range: { prefix: utf8('key/') }, holdMs: 1000 }
  const value = encodeConsumer({ ...consumer, position: ts, ackedTs: ts, startTs: ts, commitTs: ts })
  await store.system.write([{ name: 'consumer/reader', value }])
}

async function collect(store: Store, model: Model): Promise<void> {
  const safePoint = await store.tso(1)
  await store.upkeep.collect(safePoint)
  model.safePoint = safePoint
  for (const [key, [newest]] of model.versions)
    model.versions.set(key, newest === undefined || newest.value === undefined ? [] : [newest])
}

async function leaveLocks(
  store: Store,
  model: Model,
  random: Random,
  keys: readonly string[],
  presents: string[],
): Promise<void> {
  for (let i = 0; i < 4; i++) {
    const chosen = random.shuffled(keys).filter((key) => !model.locks.has(key))
    const mutations = chosen.slice(0, 3).map((key) => put(key, `${key} locked ${'x'.repeat(random.below(400))}`))
    const startTs = await store.tso(1)
    const primary = utf8(chosen[0] as string)
    await store.prewrite(prewriteOf(startTs, mutations, { primary }))
    for (const { key } of mutations) model.keys.add(text(key)) && model.locks.set(text(key), startTs)
    if (i % 2 === 0) continue
    // Its client died after the commit of the primary.
    const commitTs = await store.tso(1)
    await store.commit({ keys: [primary], startTs, commitTs })
    model.locks.delete(text(primary))
    model.add(text(primary), { commitTs, value: text((mutations[0] as { value: Uint8Array }).value) })
    presents.push(model.present())
  }
  await store.system.write([{ name: 'pin/a', value: packRecord([await store.tso(1), 1]) }])
}

export function attachedKeysOf(store: Store): AttachedKeys {
  return new AttachedKeys(store, new Coordinator(store, commitOptionsOf(store.traits)), DEFAULT_LIMITS)
}

const OBSERVERS = [
  { id: 1, name: 'all', range: { start: utf8('key/'), end: utf8('key0') }, maxDepth: 0 },
  { id: 300, name: 'some', range: { start: utf8('key/0020'), end: utf8('key/0060') }, maxDepth: 0 },
]

async function registerObservers(store: Store): Promise<void> {
  for (const observer of OBSERVERS) store.observed.register(observer)
  const records = OBSERVERS.map(({ id, name }) => ({ name: nameOfObserver(name), value: packRecord([id, id, 0]) }))
  await store.system.write(records)
}

const nameOfObserver = (name: string): SystemName => `observer/${name}`

/** Some cells are acknowledged, and some runs fail. */
async function runObservers(store: CompleteStore, random: Random): Promise<void> {
  const { id, name } = random.pick(OBSERVERS)
  const dirty = random.shuffled(await store.cells.notifications(id, { after: undefined, limit: 50 })).slice(0, 5)
  if (dirty.length === 0) return
  const fence = await store.tso(1)
  if (random.chance(0.7)) {
    const startTs = await store.tso(1)
    const acks = dirty.map(({ key }) => ({ observer: name, key, fence }))
    const primary = (dirty[0] as { key: Uint8Array }).key
    await store.prewrite(prewriteOf(startTs, [], { primary, tryOnePc: true, commitEffects: { acks } }))
    return
  }
  const isParked = random.chance(0.5)
  await store.cells.change(
    id,
    dirty.map(({ key }) => key),
    (cells, ts) => ({
      value: undefined,
      changes: cells.flatMap(({ key, notification }) => {
        if (notification === undefined) return []
        const failure = {
          attempts: 1,
          notBeforeMs: 0,
          error: 'it failed',
          parkedTs: isParked ? ts : 0,
          ...notification,
        }
        return isParked ? { key, notification: null, failure } : { key, failure }
      }),
    }),
  )
}

/** The records of observers and of their cells, by name. */
export async function observersIn(store: Store): Promise<ReadonlyMap<SystemName, string>> {
  const found = new Map<SystemName, string>()
  for (const kind of ['observer', ...CELL_KINDS] as const)
    for (const [name, value] of await store.system.list(`${kind}/`)) found.set(name, Buffer.from(value).toString('hex'))
  return found
}
