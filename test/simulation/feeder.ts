import type { KeyRange } from '../../src/bytes/key-range.js'
import { keyText } from '../../src/bytes/key-text.js'
import type { FeedEvent, FeedTxn, StreamRequest } from '../../src/changes/rules/changes-api.js'
import { isKvError } from '../../src/errors/kv-error.js'
import type { Change } from '../../src/percolator/change.js'
import type { Timestamp } from '../../src/timestamp.js'
import type { Random } from '../anomalies/random.js'
import { compareFed, type FedChange, type FedRange, fed, printFed } from './change-ledger.js'
import type { ClientWorld } from './client-world.js'
import type { RunningServer } from './running-server.js'
import type { Owner } from './scheduler.js'

export interface FeederHost {
  readonly world: ClientWorld
  readonly owner: Owner
  readonly random: Random
  sleep(ms: number): Promise<void>
}

/** What a feeder was told: everything up to `upTo`, or changes. */
type Told = { readonly upTo: Timestamp } | { readonly changes: readonly FedChange[] }

/** `undefined`: every key. */
const RANGES: readonly FedRange[] = [
  undefined,
  undefined,
  { start: 'k', end: 'l' },
  { start: 'k1', end: 'r2' },
  { start: 'r1', end: 'r4' },
]

/** The pairs of a snapshot that was cut off. */
interface Snapshot {
  readonly ts: Timestamp
  lastKey: string
  readonly copy: Map<string, string>
}

/**
 * Keeps a copy of a range: a snapshot or nothing, then the changes, by many short calls, each of which goes on where the last one was
 * left, at any event. At each resolved_ts it must have been told of each change up to there, once and in order, and its copy must be
 * the ledger's.
 */
export class Feeder {
  readonly #host: FeederHost
  readonly #source: 'log' | 'service'
  #range: FedRange
  /** Everything at or below it was delivered. undefined: it has to start over. */
  #position: Timestamp | undefined
  /** undefined: it began in the midst, with no copy. */
  #copy: Map<string, string> | undefined
  #snapshot: Snapshot | undefined

  constructor(source: 'log' | 'service', host: FeederHost) {
    this.#source = source
    this.#host = host
  }

  async follow(): Promise<void> {
    const { random, world } = this.#host
    if (this.#position === undefined) return this.#begin()
    const before = this.#position
    const told = await this.#reading(before, () =>
      this.#source === 'log' ? this.#readLog(before) : this.#readService(before),
    )
    if (told === undefined) return
    const isCut = random.chance(0.3)
    const count = this.#take(before, isCut ? told.slice(0, random.below(told.length + 1)) : told)
    world.count(isCut ? 'feed_cut' : count > 0 ? 'fed' : 'fed_nothing')
  }

  /** All that is committed when this begins has come when it ends. */
  async followToEnd(): Promise<void> {
    const { world, owner } = this.#host
    if (this.#position === undefined && this.#snapshot === undefined) this.#range = undefined
    let end: Timestamp | undefined
    while (end === undefined || this.#position === undefined || this.#position < end)
      try {
        end ??= await world.network.call(owner, 'tso', false, ({ store }) => store.tso(1))
        await this.follow()
        await this.#host.sleep(200)
      } catch (error) {
        // A write failed last, and the engine is opened again after this refusal. Servers that share a store leave locks to readers.
        const isLeft = world.ledger.isShared && isKvError(error, 'key_locked')
        if (!isLeft && !isKvError(error, 'storage_unavailable')) throw error
      }
  }

  // ---- Where it begins

  async #begin(): Promise<void> {
    const { random, world, owner } = this.#host
    const { ledger } = world
    const dice = random.below(10)
    if (this.#snapshot === undefined && !world.isEnding()) this.#range = RANGES[random.below(RANGES.length)]
    if (this.#source === 'service' && dice < 6) return this.#takeSnapshot()
    this.#snapshot = undefined
    if (dice < 3) {
      // From the first change on, while none was collected.
      const start = await world.network.call(owner, 'log_start', true, async ({ store }) => {
        if (ledger.isShared) await store.log.begin()
        return store.log.start
      })
      this.#position = start
      this.#copy = start === 0 ? new Map() : undefined
      return
    }
    const range = this.#range
    const { ts, pairs } = await world.network.call(owner, 'scan_resolved', true, async ({ store, resolver }) => {
      await store.log.begin()
      await store.readTs()
      const resolved = await store.log.resolve()
      this.#resolved(resolved)
      if (resolved < store.log.start) return { ts: resolved, pairs: undefined } // It was collected.
      const found: [string, string][] = []
      let { start, end } = keyRangeOf(range)
      for (let isMore = true; isMore; ) {
        const scan = () => store.scan({ start, end, limit: 50, ts: resolved, keyOnly: false })
        const page = await (ledger.isShared ? resolver.resolving(1000, scan) : scan()).catch((error) => {
          if (isKvError(error, 'key_locked') && !ledger.isShared)
            world.violations.add('resolved', `a scan at resolved_ts ${resolved} meets a lock: ${error.message}`)
          throw error
        })
        for (const { key, value } of page.pairs) found.push([keyText(key), textOf(value)])
        const last = page.pairs.at(-1)
        isMore = page.pairs.length === 50
        if (last !== undefined) start = Buffer.concat([last.key, Buffer.of(0)])
      }
      return { ts: resolved, pairs: found }
    })
    if (pairs !== undefined) this.#become(ts, new Map(pairs))
  }

  /** By one stream or several, each of which is left at any pair. */
  async #takeSnapshot(): Promise<void> {
    const { random } = this.#host
    const { ts = 0, lastKey = '' } = this.#snapshot ?? {}
    const from = this.#snapshot === undefined || lastKey === '' ? undefined : { ts, key: latin1(lastKey) }
    const how: StreamRequest = from === undefined ? { snapshot: true } : { snapshotAfter: from }
    if (from === undefined) this.#snapshot = undefined
    const events = await this.#reading(from?.ts, () => this.#stream(how, 50))
    if (events === undefined) return
    const isCut = random.chance(0.5)
    for (const event of isCut ? events.slice(0, random.below(events.length + 1)) : events) {
      if (event.type === 'pair') {
        this.#snapshot ??= { ts: event.ts, lastKey: '', copy: new Map() }
        const key = keyText(event.key)
        if (event.ts !== this.#snapshot.ts || key <= this.#snapshot.lastKey)
          this.#complain(`the pair of ${key} at ${event.ts} comes after ${this.#snapshot.lastKey}`)
        this.#snapshot.copy.set(key, textOf(event.value))
        this.#snapshot.lastKey = key
      } else if (event.type === 'snapshot_end') {
        this.#become(event.ts, this.#snapshot?.copy ?? new Map())
        this.#snapshot = undefined
        return
      }
    }
  }

  #become(ts: Timestamp, copy: Map<string, string>): void {
    this.#position = ts
    this.#copy = copy
    this.#checkCopy(ts)
    this.#host.world.count('feed_snapshot')
  }

  // ---- What it asks for

  /** @returns undefined when it has to start over. */
  async #reading<T>(since: Timestamp | undefined, read: () => Promise<T>): Promise<T | undefined> {
    const { world } = this.#host
    try {
      return await read()
    } catch (error) {
      if (!isKvError(error, 'ts_below_safe_point')) throw error
      const safePoint = Number(error.fields['safePoint'])
      if (since !== undefined && since >= safePoint)
        this.#complain(`${since} is refused, and the safe point is ${safePoint}`)
      world.count('feed_lost')
      this.#position = undefined
      this.#snapshot = undefined
      return undefined
    }
  }

  /** Some pages of the store's log. */
  #readLog(since: Timestamp): Promise<Told[]> {
    const { random, world, owner } = this.#host
    const { isShared } = world.ledger
    const range = this.#range
    const isFresh = random.chance(0.5)
    // All at the end: large transactions may follow each other over many pages.
    let pages = world.isEnding() ? Number.POSITIVE_INFINITY : 1 + random.below(4)
    return world.network.call(owner, 'read_log', true, async ({ store }) => {
      await store.log.begin()
      if (isFresh) await store.readTs()
      const resolved = await store.log.resolve()
      this.#resolved(resolved)
      const told: Told[] = []
      const ranges = range === undefined ? undefined : [keyRangeOf(range)]
      if (resolved < since) {
        // A feed may begin at the safe point, which a collection may raise above locks that are still to be resolved.
        if (since > store.log.start && !isShared)
          this.#complain(`resolved_ts is ${resolved}, where ${since} was delivered`)
        return told
      }
      for await (const { changes, upTo } of store.log.read({ since, upTo: resolved, ranges })) {
        told.push({ changes: changes.flatMap((change) => fed(fedOf(change), range) ?? []) }, { upTo })
        if (--pages === 0) break
      }
      return told
    })
  }

  async #readService(since: Timestamp): Promise<Told[]> {
    const { random } = this.#host
    if (random.chance(0.4)) return this.#readPage(since)
    const events = await this.#stream({ sinceTs: since }, 1 + random.below(6))
    this.#checkTxns(events.flatMap((event) => (event.type === 'txn' ? [event] : [])))
    return events.flatMap((event): Told[] => {
      if (event.type === 'resolved') return [{ upTo: event.resolvedTs }]
      // All below its commit_ts has been delivered.
      return event.type === 'txn' ? [{ upTo: event.commitTs - 1 }, { changes: fedIn(event) }] : []
    })
  }

  async #readPage(since: Timestamp): Promise<Told[]> {
    const { random, world, owner } = this.#host
    const limit = random.pick([1, 2, 10, 1000])
    const waitMs = random.pick([0, 0, 300])
    const range = this.#range
    const selection = range === undefined ? {} : keyRangeOf(range)
    return world.network.call(owner, 'page', true, async ({ changes }) => {
      const page = await changes.page({ ...selection, sinceTs: since, limit, waitMs })
      world.ledger.changes.published(page.nextTs)
      this.#checkTxns(page.txns)
      return [{ changes: page.txns.flatMap(fedIn) }, { upTo: page.nextTs }]
    })
  }

  /** The first batches of a stream, which is then left. */
  #stream(how: StreamRequest, batches: number): Promise<FeedEvent[]> {
    const { random, world, owner } = this.#host
    const range = this.#range
    const selection = range === undefined ? {} : keyRangeOf(range)
    const waitMs = random.pick([0, 50, 1000])
    const heartbeatMs = random.pick([100, 5000])
    const pauseMs = random.chance(0.3) ? random.pick([1, 30, 400]) : 0
    return world.network.call(owner, 'stream', true, async ({ changes }: RunningServer) => {
      const events: FeedEvent[] = []
      let left = batches
      for await (const batch of changes.stream({ ...selection, ...how, waitMs, heartbeatMs })) {
        for (const event of batch) {
          if (event.type === 'resolved') world.ledger.changes.published(event.resolvedTs)
          if (event.type === 'snapshot_end') world.ledger.changes.published(event.ts)
          events.push(event)
        }
        if (--left === 0) break
        if (pauseMs > 0) await new Promise((resolve) => setTimeout(resolve, pauseMs)) // A slow reader.
      }
      return events
    })
  }

  /** Another server may know less. */
  #resolved(ts: Timestamp): void {
    const { isShared, changes } = this.#host.world.ledger
    if (isShared) changes.published(ts)
    else changes.resolved(ts)
  }

  // ---- What it checks

  /** Parts of one transaction come one after another, and no transaction comes twice. */
  #checkTxns(txns: readonly FeedTxn[]): void {
    for (let i = 1; i < txns.length; i++) {
      const [before, txn] = [txns[i - 1] as FeedTxn, txns[i] as FeedTxn]
      const isSame =
        before.commitTs === txn.commitTs && before.startTs === txn.startTs && isOfExpiries(before) === isOfExpiries(txn)
      const isNext = isSame && txn.part !== undefined && txn.part === (before.part ?? -1) + 1 && !before.isLast
      if (isSame && !isNext) this.#complain(`the transaction of ${txn.startTs} comes twice, or in parts out of order`)
      if (!isSame && before.part !== undefined && !before.isLast)
        this.#complain(`the last part of the transaction of ${before.startTs} is missing`)
    }
  }

  /** @returns how many changes there were. */
  #take(since: Timestamp, told: readonly Told[]): number {
    let position = since
    let pending: FedChange[] = []
    let count = 0
    for (const each of told) {
      if ('changes' in each) {
        for (const change of each.changes) pending.push(change)
        continue
      }
      // Of several transactions at one commit_ts the rest may be still to come.
      const isUnfinished = pending.some(({ commitTs }) => commitTs > each.upTo)
      if (isUnfinished || each.upTo <= position) continue
      this.#checkChanges(position, each.upTo, pending)
      for (const change of pending) this.#apply(change)
      count += pending.length
      pending = []
      position = each.upTo
      this.#position = position
      this.#checkCopy(position)
    }
    return count
  }

  /** What is left out was removed by a delete_range that comes later. */
  #checkChanges(since: Timestamp, upTo: Timestamp, told: readonly FedChange[]): void {
    const { ledger, scheduler } = this.#host.world
    scheduler.note(upTo)
    scheduler.note(told.length)
    const range = this.#range
    ledger.check(() => this.#compare(ledger.fedBetween(since, upTo, range), told, `above ${since} up to ${upTo}`))
  }

  #compare(expected: readonly FedChange[], told: readonly FedChange[], where: string): void {
    let at = 0
    for (const change of told) {
      const isMissing = (each: FedChange): boolean => compareFed(each, change) < 0
      for (let next = expected[at]; next !== undefined && isMissing(next); next = expected[++at])
        this.#requireRemoved(next)
      const next = expected[at++]
      const isSame =
        next !== undefined &&
        compareFed(next, change) === 0 &&
        next.type === change.type &&
        next.value === change.value &&
        next.end === change.end
      if (isSame) continue
      this.#complain(`${where} comes ${printFed(change)}, where ${next ? printFed(next) : 'nothing'} had to`)
      return
    }
    for (const next of expected.slice(at)) this.#requireRemoved(next)
  }

  #requireRemoved(change: FedChange): void {
    const { ledger } = this.#host.world
    if (change.type === 'expire' && ledger.mayExpireUntold(change.key, change.commitTs)) return
    if (change.end !== undefined || !ledger.changes.isRemoved(change.key, change.commitTs))
      this.#complain(`${printFed(change)} is missing`)
  }

  #apply({ type, key, value, end }: FedChange): void {
    if (this.#copy === undefined) return
    if (type === 'put') this.#copy.set(key, value ?? '')
    else if (end === undefined) this.#copy.delete(key)
    else for (const each of [...this.#copy.keys()]) if (each >= key && each < end) this.#copy.delete(each)
  }

  /** The copy is the ledger's, but for keys that a delete_range above `ts` has taken. */
  #checkCopy(ts: Timestamp): void {
    const { ledger } = this.#host.world
    const range = this.#range
    if (this.#copy === undefined) return
    const copy = ledger.isShared ? new Map(this.#copy) : this.#copy
    ledger.check(() => {
      for (const key of new Set([...ledger.keys, ...copy.keys()])) {
        if (range !== undefined && (key < range.start || key >= range.end)) continue
        const expected = ledger.valueAt(key, ts)
        const isUntold = ledger.changes.isRemoved(key, ts) || (!expected && ledger.mayExpireUntold(key, ts))
        if (copy.get(key) !== expected && !isUntold)
          this.#complain(`at ${ts} the copy has ${copy.get(key)} for ${key}, where ${expected} is committed`)
      }
    })
  }

  #complain(what: string): void {
    this.#host.world.violations.add('feed', `by the ${this.#source}: ${what}`)
  }
}

/** A delete_range may have the timestamp of expiries. */
function isOfExpiries({ changes: [first] }: FeedTxn): boolean {
  return first?.op === 'expire'
}

function keyRangeOf(range: FedRange): KeyRange {
  return range === undefined ? {} : { start: latin1(range.start), end: latin1(range.end) }
}

function fedOf(change: Change): FedChange {
  const { type, commitTs, startTs } = change
  const key = keyText(change.key)
  if (type === 'delete_range') return { type, key, commitTs, startTs, value: undefined, end: keyText(change.end) }
  return { type, key, commitTs, startTs, value: type === 'put' ? textOf(change.value) : undefined, end: undefined }
}

function fedIn({ commitTs, startTs, changes }: FeedTxn): FedChange[] {
  return changes.map(({ key, op, value, end }): FedChange => {
    return {
      type: op,
      key: keyText(key),
      commitTs,
      startTs,
      value: op === 'put' ? textOf(value) : undefined,
      end: end && keyText(end),
    }
  })
}

const latin1 = (text: string): Buffer => Buffer.from(text, 'latin1')
const textOf = (value: Uint8Array | undefined): string => Buffer.from(value ?? Buffer.from('?')).toString()
