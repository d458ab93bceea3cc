import { randomBytes } from 'node:crypto'
import type { Page, PageRequest } from '../bytes/sorted-map.js'
import type { Limits } from '../limits.js'
import type { Store } from '../store/store.js'
import type { SystemName } from '../store/system-records.js'
import { physicalMs, type Timestamp, timestampFromMs } from '../timestamp.js'
import { LEASES, type LeaseTerms, type OverLeases, type SeenLease } from './lease-terms.js'
import { tooManyLeases } from './refusals.js'
import { decodeLease, encodeLease } from './rules/codec/lease.js'
import { hasKeysToEnd, heldAt, type LeaseRecord } from './rules/lease-record.js'
import type { LeaseRequest, LeaseState } from './rules/leases-api.js'

/** Records that this process remembers. */
const KNOWN_MAX = 10_000
/** Makes the nonces of all processes unique. */
const NONCE_BYTES = 12
/** Interval between two walks over all leases: while keys are attached to some of them, and otherwise. */
const WALK_MS_WITH_KEYS = 1500
const WALK_MS = 10_000
/** Beyond this many leases the interval grows in proportion. */
const WALK_LEASES = 1000
/** A server that has made a free record has granted the lease by then, or is dead. */
const FREE_MS_MAX = 60_000
const COUNT_AGAIN_MS = 1000

const LEASE_NAMES = /^[A-Za-z0-9._/-]*$/

/**
 * Terms of leases that several servers grant, in records of the shared table. Correctness depends on no clock, no memory of a
 * server, and no messages between servers: terms end by timestamps of the oracle, and every change is one conditional write on
 * the record that was read.
 * Why every commit under a fence is below every later fence: see the README of this folder.
 */
export class TermsInRecords implements LeaseTerms {
  readonly #store: Store
  readonly #leasesMax: number
  /** Grants in force, as this process has written them. The oldest is dropped first. */
  readonly #known = new Map<string, SeenLease>()
  /** Counts of the last walk, adjusted by what this process has done since. */
  readonly #found = { held: 0, ending: 0, atMs: Number.NEGATIVE_INFINITY }
  #names = new Set<string>()

  constructor(store: Store, { leasesMax }: Pick<Limits, 'leasesMax'>) {
    this.#store = store
    this.#leasesMax = leasesMax
  }

  has(name: string): boolean {
    return this.#names.has(name)
  }

  counts(): { readonly held: number; readonly ending: number } {
    const { held, ending } = this.#found
    return { held: Math.max(0, held), ending: Math.max(0, ending) }
  }

  /** Never answers without a write: every renewal is one. */
  renew(): undefined {}

  async held(name: string): Promise<LeaseState | undefined> {
    return (await this.look(name)).held
  }

  async fencesAt(names: readonly string[], ts?: Timestamp): Promise<readonly Timestamp[]> {
    const atTs = ts ?? (await this.#store.tso(1))
    const records = await this.#store.system.many(names.map(recordName)) // Read after the timestamp.
    return names.map((name, i) => seenAt(name, records[i], atTs).held?.fence ?? 0)
  }

  async page(
    { prefix = '', after, limit }: PageRequest,
    mayAccess?: (name: string) => boolean,
  ): Promise<Page<LeaseState>> {
    const items: LeaseState[] = []
    if (!LEASE_NAMES.test(prefix)) return { items, next: undefined }
    const above = after === undefined ? undefined : recordName(after)
    const nowTs = await this.#store.tso(1)
    for await (const records of this.#store.system.pages(recordName(prefix), above))
      for (const [stored, bytes] of records) {
        const name = stored.slice(LEASES.length)
        const { held } = seenAt(name, bytes, nowTs)
        if (held === undefined || mayAccess?.(name) === false) continue
        if (items.length === limit) return { items, next: items.at(-1)?.name }
        items.push(held)
      }
    return { items, next: undefined }
  }

  async look(name: string, request?: Pick<LeaseRequest, 'holder' | 'fence'>): Promise<SeenLease> {
    return (await this.#guess(name, request)) ?? this.#read(name)
  }

  async #read(name: string): Promise<SeenLease> {
    const [bytes, nowTs] = await Promise.all([this.#store.system.get(recordName(name)), this.#store.tso(1)])
    return seenAt(name, bytes, nowTs)
  }

  /** A holder that has renewed here is likely to do so again, with an unchanged record. */
  async #guess(name: string, request?: Pick<LeaseRequest, 'holder' | 'fence'>): Promise<SeenLease | undefined> {
    const known = this.#known.get(name)
    if (known === undefined || known.record?.holder !== request?.holder) return undefined
    const seen = seenAt(name, known.bytes, await this.#store.tso(1))
    return seen.held !== undefined && (request?.fence ?? seen.held.fence) === seen.held.fence ? seen : undefined
  }

  async swap(name: string, seen: SeenLease, next: LeaseRecord | undefined): Promise<SeenLease | undefined> {
    const bytes = next && encodeLease(next, randomBytes(NONCE_BYTES))
    this.#known.delete(name)
    if (!(await this.#store.system.replace(recordName(name), seen.bytes, bytes))) return undefined
    for (const state of ['held', 'ending'] as const)
      this.#found[state] += Number(next?.state === state) - Number(seen.record?.state === state)
    if (next === undefined) this.#names.delete(name)
    else this.#names.add(name)
    const present = seenAt(name, bytes, seen.nowTs)
    if (next?.state === 'held') this.#remember(name, present)
    return present
  }

  #remember(name: string, seen: SeenLease): void {
    this.#known.set(name, seen)
    if (this.#known.size <= KNOWN_MAX) return
    for (const oldest of this.#known.keys()) {
      this.#known.delete(oldest)
      break
    }
  }

  async requireRoom(): Promise<void> {
    const isFull = (): boolean => this.#names.size >= this.#leasesMax
    if (isFull() && this.#store.time.elapsedMs() - this.#found.atMs >= COUNT_AGAIN_MS) await this.#count()
    if (isFull()) throw tooManyLeases(this.#leasesMax)
  }

  async over(): Promise<OverLeases> {
    const all = await this.#count()
    const over: [string, SeenLease][] = []
    let hasKeys = false
    for (const [name, seen] of all) {
      const { record, held, nowTs } = seen
      hasKeys ||= hasKeysToEnd(record)
      const isStale = record?.state !== 'free' || record.endsTs + timestampFromMs(FREE_MS_MAX) < nowTs
      if (held === undefined && isStale) over.push([name, seen])
    }
    // Starts at a random place, so that servers which walk at the same time do not meet at every lease.
    const from = Math.floor(Math.random() * over.length)
    const nextMs = (hasKeys ? WALK_MS_WITH_KEYS : WALK_MS) * Math.max(1, all.size / WALK_LEASES)
    return { over: [...over.slice(from), ...over.slice(0, from)], nextMs }
  }

  async #count(): Promise<ReadonlyMap<string, SeenLease>> {
    const nowTs = await this.#store.tso(1)
    const all = new Map<string, SeenLease>()
    const found = { held: 0, ending: 0, atMs: this.#store.time.elapsedMs() }
    for (const [stored, bytes] of await this.#store.system.list(LEASES)) {
      const name = stored.slice(LEASES.length)
      const seen = seenAt(name, bytes, nowTs)
      all.set(name, seen)
      if (seen.held !== undefined) found.held++
      else if (hasKeysToEnd(seen.record)) found.ending++
    }
    this.#names = new Set(all.keys())
    Object.assign(this.#found, found)
    return all
  }
}

function recordName(name: string): SystemName {
  return `${LEASES}${name}`
}

function seenAt(name: string, bytes: Uint8Array | undefined, nowTs: Timestamp): SeenLease {
  const record = bytes && decodeLease(bytes)
  const held = heldAt(record, nowTs)
  return { record, bytes, held: held && stateOf(name, held), nowTs }
}

function stateOf(name: string, { holder, fence, ttlMs, endsTs }: LeaseRecord): LeaseState {
  return { name, holder, fence, ttlMs, expiresAtMs: physicalMs(endsTs) }
}
