import { pairBytes } from '../bytes/answer-size.js'
import type { KeyRange } from '../bytes/key-range.js'
import { afterKey } from '../bytes/key-range.js'
import { keyText } from '../bytes/key-text.js'
import { OrderedKeys } from '../bytes/ordered-keys.js'
import { invalid, KvError } from '../errors/kv-error.js'
import type { Pair, PrewriteMutation, ScanAnswer, Version } from '../percolator/api.js'
import type { LeaseGuard } from '../percolator/commit-effects.js'
import { STAMP_LENGTHS, STAMPS_MAX, type Stamp, type StampedPut, stampedMutations } from '../percolator/stamped-key.js'
import { hasExpired } from '../percolator/write.js'
import type { Timestamp } from '../timestamp.js'

export interface PutOptions {
  readonly expireTs?: Timestamp | undefined
  readonly lease?: string | undefined
  /** The replaced version, as the transaction has read it. If it is attached to a lease, the new version is too. */
  readonly keeps?: Pick<Version, 'leaseFence'> | undefined
}

interface BufferedWrite {
  readonly key: Uint8Array
  readonly value: Uint8Array | undefined
  /** 0: never. */
  readonly expireTs: Timestamp
  readonly lease: string | undefined
  readonly keepsLease: boolean
}

type OwnVersion = Pick<Version, 'value' | 'expireTs'>

export type MergedPair = Omit<Pair, 'commitTs'> & { readonly commitTs?: Timestamp }

export interface MergedScan {
  readonly pairs: readonly MergedPair[]
  /** Set when a limit on bytes ended the scan: the last key visited. More pairs may follow. */
  readonly cutAfter?: Uint8Array | undefined
}

export interface ScanOrder extends KeyRange {
  readonly limit: number
  readonly reverse: boolean
  readonly keyOnly: boolean
  /** In process only: the scan ends with the pair that reaches this many bytes of keys and values. */
  readonly bytesMax?: number | undefined
}

/** Limit on the growth of a scan's pages when own deletions hide pairs of the snapshot. */
const PAGE_MAX = 1000
const NO_OPTIONS: PutOptions = {}

/** The writes as of one moment. Until it is released, the buffer keeps each write that a later one replaces. */
export interface WritesView extends Pick<WriteBuffer, 'mergeScan'> {
  retain(): void
  release(): void
}

/** The write that a key had until a newer one replaced it. `view` is the newest view that can see it. */
interface Replaced {
  readonly view: number
  /** undefined: nothing was written yet. */
  readonly write: BufferedWrite | undefined
}

type WriteOf = (text: string) => BufferedWrite | undefined

/** Bytes of memory per replaced write, beyond its content. */
const REPLACED_BYTES = 100

export class WriteBuffer {
  #writes = new Map<string, BufferedWrite>()
  /** Numbers of the views not released yet, oldest first. */
  readonly #views = new Set<number>()
  #lastView = 0
  /** Replaced writes kept for views, by `keyText`, oldest first. */
  #replaced = new Map<string, Replaced[]>()
  #replacedBytes = 0
  /** `#replacedBytes` after the last `#dropUnseen`. */
  #neededBytes = 0
  #order: OrderedKeys | undefined
  /** The transaction does not read them: their keys are not known yet. */
  readonly #stamped: StampedPut[] = []
  #bytes = 0
  /** While `atomically` runs: the previous write of each key that it changed. */
  #undo: Map<string, BufferedWrite | undefined> | undefined

  /**
   * @param startTs snapshot of the transaction. Expiry of its own writes is decided there too.
   * @param bytesMax limit on the bytes of keys and values.
   */
  constructor(
    readonly startTs: Timestamp,
    readonly bytesMax = Number.POSITIVE_INFINITY,
    readonly keysMax = Number.POSITIVE_INFINITY,
  ) {}

  get size(): number {
    return this.#writes.size + this.#stamped.length
  }
  /** In the order of the puts. */
  get stamped(): readonly StampedPut[] {
    return this.#stamped
  }
  /** Bytes of keys and values. */
  get bytes(): number {
    return this.#bytes
  }

  has(key: Uint8Array): boolean {
    return this.#writes.size > 0 && this.#writes.has(keyText(key))
  }

  /**
   * @returns the transaction's own version; null when it has deleted the key or the version has expired; undefined when
   *   it has not written the key.
   */
  get(key: Uint8Array): OwnVersion | null | undefined {
    const write = this.#writes.size === 0 ? undefined : this.#writes.get(keyText(key))
    return write && this.#versionOf(write)
  }

  #versionOf({ value, expireTs }: BufferedWrite): OwnVersion | null {
    if (value === undefined || hasExpired(expireTs, this.startTs)) return null
    return expireTs === 0 ? { value } : { value, expireTs }
  }

  /** Bytes of memory held for views, or until lately. */
  get viewBytes(): number {
    return this.#replacedBytes
  }

  /** The writes as of now, so that a scan of several pages does not meet the writes of its own loop. */
  view(): WritesView {
    const number = ++this.#lastView
    this.#views.add(number)
    let users = 1
    return {
      mergeScan: (request, scan) => this.#mergeScan(request, scan, (text) => this.#asOf(number, text)),
      retain: () => {
        users++
      },
      release: () => {
        if (--users === 0 && this.#views.delete(number)) this.#dropUnseen()
      },
    }
  }

  #asOf(view: number, text: string): BufferedWrite | undefined {
    let found: Replaced | undefined
    const all = this.#replaced.get(text) ?? []
    for (let i = all.length - 1; i >= 0; i--) {
      const replaced = all[i] as Replaced
      if (replaced.view < view) break
      found = replaced
    }
    return found === undefined ? this.#writes.get(text) : found.write
  }

  /**
   * Drops the replaced writes that no view sees. Runs only when half of the bytes may go, so that its cost is spread
   * over the writes.
   */
  #dropUnseen(): void {
    if (this.#views.size > 0 && this.#replacedBytes < 2 * this.#neededBytes) return
    const before = this.#replaced
    const views = [...this.#views]
    this.#replaced = new Map()
    this.#replacedBytes = 0
    for (const [text, all] of before) {
      let after = 0
      const seen = all.filter(({ view }) => {
        const isSeen = views.some((each) => each > after && each <= view)
        after = view
        return isSeen
      })
      for (const { write } of seen) this.#replacedBytes += replacedBytesOf(text, write)
      if (seen.length > 0) this.#replaced.set(text, seen)
      else if (!this.#writes.has(text)) this.#order?.delete(text)
    }
    this.#neededBytes = this.#replacedBytes
  }

  put(key: Uint8Array, value: Uint8Array, { expireTs = 0, lease, keeps }: PutOptions = NO_OPTIONS): void {
    const own = keeps === undefined || this.#writes.size === 0 ? undefined : this.#writes.get(keyText(key))
    if (own !== undefined) this.#set({ key, value, expireTs, lease: own.lease, keepsLease: own.keepsLease })
    else this.#set({ key, value, expireTs, lease, keepsLease: keeps?.leaseFence !== undefined })
  }

  delete(key: Uint8Array): void {
    this.#set({ key, value: undefined, expireTs: 0, lease: undefined, keepsLease: false })
  }

  /** @returns the counter of the key. */
  putStamped(key: Uint8Array, value: Uint8Array, stamp: Stamp, expireTs: Timestamp = 0): number {
    const counter = this.#stamped.length
    const write = { key, counter, stamp, value, expireTs }
    this.#requireRoom(this.#bytes + stampedBytes(write))
    if (this.size >= this.keysMax || counter >= STAMPS_MAX) throw tooManyKeys(Math.min(this.keysMax, STAMPS_MAX))
    this.#bytes += stampedBytes(write)
    this.#stamped.push(write)
    return counter
  }

  /** Undoes the writes of `body` when it throws. Must not be nested. */
  async atomically<T>(body: () => Promise<T>): Promise<T> {
    const undo = new Map<string, BufferedWrite | undefined>()
    const stampedBefore = this.#stamped.length
    this.#undo = undo
    try {
      return await body()
    } catch (error) {
      for (const [text, before] of undo) this.#replace(text, before)
      for (const write of this.#stamped.splice(stampedBefore)) this.#bytes -= stampedBytes(write)
      throw error
    } finally {
      this.#undo = undefined
    }
  }

  /** @throws KvError `payload_too_large` */
  #set(write: BufferedWrite): void {
    const text = keyText(write.key)
    const before = this.#writes.get(text)
    this.#requireRoom(this.#bytes - writeBytes(before) + writeBytes(write))
    if (before === undefined && this.size >= this.keysMax) throw tooManyKeys(this.keysMax)
    if (this.#undo?.has(text) === false) this.#undo.set(text, before)
    this.#replace(text, write)
  }

  #requireRoom(bytes: number): void {
    if (bytes <= this.bytesMax) return
    const detail = `the transaction would write over ${this.bytesMax} bytes of keys and values`
    throw new KvError('payload_too_large', detail, { field: 'value', limit: this.bytesMax })
  }

  #replace(text: string, write: BufferedWrite | undefined): void {
    const before = this.#writes.get(text)
    if (this.#views.size > 0) this.#keep(text, before)
    this.#bytes += writeBytes(write) - writeBytes(before)
    if (write === undefined) {
      this.#writes.delete(text)
      if (!this.#replaced.has(text)) this.#order?.delete(text)
    } else {
      this.#writes.set(text, write)
      this.#order?.add(text)
    }
  }

  #keep(text: string, write: BufferedWrite | undefined): void {
    const view = this.#lastView
    const all = this.#replaced.get(text)
    if (all?.at(-1)?.view === view) return
    if (all === undefined) this.#replaced.set(text, [{ view, write }])
    else all.push({ view, write })
    this.#replacedBytes += replacedBytesOf(text, write)
  }

  /**
   * @param leases the leases that the transaction checks.
   * @throws KvError `invalid_argument` for a key that is attached to another lease.
   */
  mutations(leases: readonly LeaseGuard[] = []): PrewriteMutation[] {
    return [...this.#writes.values()].map(({ key, value, expireTs, lease, keepsLease }) => {
      if (value === undefined) return { op: 'delete', key }
      if (lease !== undefined) return { op: 'put', key, value, expireTs, leaseFence: fenceOf(lease, leases) }
      if (keepsLease) return { op: 'put', key, value, expireTs, keepsLease }
      return expireTs === 0 ? { op: 'put', key, value } : { op: 'put', key, value, expireTs }
    })
  }

  stampedMutations(): PrewriteMutation[] {
    return stampedMutations(this.#stamped, this.startTs)
  }

  /**
   * Scans the snapshot merged with these writes.
   * @param scan reads at most `limit` pairs of the snapshot, from a part of the request's range and in the same direction.
   */
  mergeScan(
    request: ScanOrder,
    scan: (part: KeyRange & { readonly limit: number }) => Promise<ScanAnswer>,
  ): Promise<MergedScan> {
    return this.#mergeScan(request, scan, (text) => this.#writes.get(text))
  }

  async #mergeScan(
    request: ScanOrder,
    scan: (part: KeyRange & { readonly limit: number }) => Promise<ScanAnswer>,
    writeOf: WriteOf,
  ): Promise<MergedScan> {
    const { limit, reverse, bytesMax = Number.POSITIVE_INFINITY } = request
    const pairs: MergedPair[] = []
    let bytes = 0
    let range: KeyRange = { start: request.start, end: request.end }
    for (let wanted = limit; ; ) {
      const page = await scan({ ...range, limit: wanted })
      const isWhole = page.pairs.length < wanted && page.isCut !== true
      const last = isWhole ? undefined : page.pairs.at(-1)?.key // The snapshot is unknown beyond this key.
      for (const pair of this.#merge(page.pairs, range, last, request, writeOf)) {
        pairs.push(pair)
        bytes += pairBytes(pair)
        if (pairs.length >= limit) return { pairs }
        if (bytes >= bytesMax) return { pairs, cutAfter: pair.key }
      }
      if (last === undefined) return { pairs }
      if (page.isCut) return { pairs, cutAfter: last }
      range = reverse ? { start: range.start, end: last } : { start: afterKey(last), end: range.end }
      // Own deletions hid pairs of this page, and may hide as many pairs of the next one.
      wanted = Math.max(limit - pairs.length, Math.min(PAGE_MAX, 2 * wanted))
    }
  }

  /** Merges one page with the own writes, in the order of the scan, up to and including `last`. */
  *#merge(
    page: readonly Pair[],
    range: KeyRange,
    last: Uint8Array | undefined,
    { reverse, keyOnly }: ScanOrder,
    writeOf: WriteOf,
  ): Generator<MergedPair, void> {
    if (this.#writes.size === 0 && this.#replaced.size === 0) return yield* page
    const start = reverse && last !== undefined ? last : range.start
    const end = !reverse && last !== undefined ? afterKey(last) : range.end
    let next = 0
    for (const text of this.#ordered().range(start && keyText(start), end && keyText(end), reverse)) {
      const write = writeOf(text)
      if (write === undefined) continue
      for (; next < page.length; next++) {
        const pair = page[next] as Pair
        const pairText = keyText(pair.key)
        if (pairText === text) next++ // The own write hides this pair.
        if (pairText === text || pairText > text !== reverse) break
        yield pair
      }
      const own = this.#versionOf(write)
      if (own === null) continue
      const { value, ...rest } = own
      yield keyOnly ? { key: write.key, ...rest } : { key: write.key, ...own }
    }
    yield* page.slice(next)
  }

  /** Built by the first scan. From then on `#replace` maintains it. */
  #ordered(): OrderedKeys {
    if (this.#order === undefined) {
      this.#order = new OrderedKeys()
      for (const text of this.#writes.keys()) this.#order.add(text)
      for (const text of this.#replaced.keys()) this.#order.add(text)
    }
    return this.#order
  }
}

function fenceOf(name: string, leases: readonly LeaseGuard[]): Timestamp {
  const checked = leases.find(({ lease }) => lease === name)
  if (checked === undefined) throw invalid('lease', `the transaction does not check the lease ${name}`)
  return checked.fence
}

export function tooManyKeys(keysMax: number): KvError<'payload_too_large'> {
  const detail = `the transaction would write or lock more than ${keysMax} keys`
  return new KvError('payload_too_large', detail, { field: 'key', limit: keysMax })
}

function writeBytes(write: BufferedWrite | undefined): number {
  return write === undefined ? 0 : pairBytes(write)
}

function stampedBytes(write: StampedPut): number {
  return pairBytes(write) + STAMP_LENGTHS[write.stamp]
}

function replacedBytesOf(text: string, write: BufferedWrite | undefined): number {
  return REPLACED_BYTES + text.length + writeBytes(write)
}
