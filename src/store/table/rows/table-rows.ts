import { groupBy } from '../../../bytes/group-by.js'
import { keyText } from '../../../bytes/key-text.js'
import { isReserved } from '../../../bytes/reserved-keys.js'
import { Backoff } from '../../../coordinator/backoff.js'
import { inParts } from '../../../coordinator/in-parts.js'
import { isKvError, KvError } from '../../../errors/kv-error.js'
import { printKey } from '../../../errors/print-key.js'
import { StoreMeters } from '../../../meters/store-meters.js'
import type { TimestampSource } from '../../../oracle/timestamp-source.js'
import type { PrewriteRequest } from '../../../percolator/api.js'
import type { Lock } from '../../../percolator/lock.js'
import { type HistoryDepth, type Mutation, sameKey } from '../../../percolator/row.js'
import type { WriteRecord } from '../../../percolator/write.js'
import type { Timestamp } from '../../../timestamp.js'
import { type AccessGuard, accessGuard } from '../../calls/access-guard.js'
import type { Change, Decided, Decision, RowAccess } from '../../calls/row-access.js'
import { Latches } from '../../latches.js'
import { decodeCells, LOCK_COLUMN } from '../layout/layout.js'
import { keyOfRow } from '../layout/row-keys.js'
import type { TableScan } from '../layout/table-scan.js'
import type { Decisions } from '../log/decisions.js'
import type { ExpiryRow } from '../log/expiry-rows.js'
import type { Hints } from '../observers/hints.js'
import type { Collection } from './collection.js'
import { ContendedKeys } from './contended-keys.js'
import { type KnownRow, viewOf } from './known-row.js'
import type { RowTable } from './row-table.js'
import type { SafePoint } from './safe-point.js'

/** Values up to this many bytes are stored in the lock and the write record. A longer one costs a read a second call. */
const SHORT_VALUE_BYTES_MAX = 4096
/** Rows of one request that change in parallel. More calls would wait in the client until they time out. */
const ROWS_AT_ONCE = 64
/** How long a change is decided again while others keep changing its rows. */
const CONTENDED_MS_MAX = 10_000
/** Tries in one phase that others may keep from all their rows. In two phases the locks stay, and the others wait. */
const AT_ONCE_MAX = 5

interface Held {
  /** undefined: the row has to be read. */
  row: KnownRow | undefined
  /** The row is from the cache, so only a conditional mutation may rely on it. */
  isGuess: boolean
  /** Mutations of this change that were written, in order, and the row before the first of them. */
  landed: { readonly before: KnownRow; readonly mutations: readonly Mutation[] } | undefined
}

interface Written {
  readonly isWhole: boolean
  /** A part of it may be done. */
  readonly mayHaveLanded: boolean
}

interface Plan<T> {
  readonly decision: Decided<T>
  /** By the index of the row. */
  readonly toWrite: ReadonlyMap<number, readonly Mutation[]>
  /** The row to write before the others. */
  readonly first: number | undefined
}

export interface TableRowsOptions {
  readonly table: RowTable
  readonly scan: TableScan
  readonly source: TimestampSource
  readonly safePoint: SafePoint
  readonly hints: Hints
  readonly collection: Pick<Collection, 'collectRow'>
  readonly decisions: Decisions
}

/** What was written of some rows. */
interface WrittenRows {
  readonly isWhole: boolean
  readonly hasLanded: boolean
  readonly wasUncertain: boolean
}

/**
 * Rows of the table. A change reads rows, decides, and writes each row if it is still as it was read. The rows of a change are
 * not written at one moment, so the row of the primary goes first whenever a transaction ends.
 */
export class TableRows implements RowAccess {
  readonly shortValueBytesMax = SHORT_VALUE_BYTES_MAX
  /** This store calculates no commit timestamps, so it need not know the reads of all processes. */
  readonly maxTs = 0
  readonly removalTs = 0
  readonly passedTs = 0
  readonly meters = new StoreMeters()
  /** Keep requests of this process from losing races against each other. */
  readonly latches = new Latches(this.meters.latchWaits)
  /** Called when the row of a key was written and has no lock now. Must not throw. */
  onUnlock: (key: Uint8Array) => void = () => {}
  readonly #contended = new ContendedKeys()
  readonly #table: RowTable
  readonly #scan: TableScan
  readonly #source: TimestampSource
  readonly #safePoint: SafePoint
  readonly #hints: Hints
  readonly #collection: Pick<Collection, 'collectRow'>
  readonly #decisions: Decisions

  constructor({ table, scan, source, safePoint, hints, collection, decisions }: TableRowsOptions) {
    this.#collection = collection
    this.#decisions = decisions
    this.#safePoint = safePoint
    this.#table = table
    this.#scan = scan
    this.#source = source
    this.#hints = hints
  }

  get safePoint(): Timestamp {
    return this.#safePoint.value
  }
  get clearedTs(): Timestamp {
    return this.#safePoint.cleared
  }
  get lastTs(): Timestamp {
    return this.#source.last
  }
  clock(): Timestamp {
    return this.#source.clock()
  }
  now(): Timestamp {
    return this.#source.now()
  }
  /** A jump of one process's clock says nothing about timestamps of others. */
  jumpedSince(): number {
    return 0
  }
  observe(ts: Timestamp): undefined | Promise<void> {
    return this.#source.observe(ts)
  }
  /** A transaction takes its commit_ts after all its locks, so it is above every timestamp that a reader has observed. */
  observeRead(ts: Timestamp): undefined | Promise<void> {
    return this.#source.observe(ts)
  }

  async historyOf(key: Uint8Array, startTs: Timestamp, depth: HistoryDepth = 'txn'): Promise<readonly WriteRecord[]> {
    const [row] = await this.#table.read([key], depth, startTs)
    return row?.writes ?? []
  }

  /** @returns the commit_ts of the transaction's record at the first of the keys that has one; 0: none has. */
  async commitTsOf(keys: readonly Uint8Array[], startTs: Timestamp): Promise<Timestamp> {
    for (const some of inParts(keys, ROWS_AT_ONCE))
      for (const { writes } of await this.#table.read(some, 'txn', startTs)) {
        const record = writes.find((write) => write.startTs === startTs && write.type !== 'rollback')
        if (record !== undefined) return record.commitTs
      }
    return 0
  }

  /** start_ts of the locks on these keys, as in the table. */
  async holdersOf(keys: readonly Uint8Array[]): Promise<(Timestamp | undefined)[]> {
    const rows = await this.#table.read(keys, 'none', 0)
    return rows.map(({ lock }) => lock?.startTs)
  }

  claim(): never {
    throw new Error('a shared store gets the keys of versionstamped puts with the prewrite')
  }

  async lockedBy(txns: ReadonlySet<Timestamp>): Promise<ReadonlyMap<Timestamp, readonly Uint8Array[]>> {
    const found = new Map<Timestamp, Uint8Array[]>()
    for await (const rows of this.#scan.pages({}, [LOCK_COLUMN]))
      for (const { key, cells } of rows) {
        const { lock } = decodeCells(cells)
        if (lock === undefined || !txns.has(lock.startTs)) continue
        const keys = found.get(lock.startTs) ?? []
        found.set(lock.startTs, keys)
        const locked = keyOfRow(key)
        if (sameKey(locked, lock.primary)) keys.unshift(locked)
        else keys.push(locked)
      }
    return found
  }

  update<T>(change: Change<T>): Promise<T> {
    if (change.isExclusive) return this.#update(change)
    return this.latches.hold(change.keys.map(keyText), () => this.#update(change))
  }

  /**
   * Commits in one phase if all rows are known, with nothing to decide before they are locked.
   * @param done called once, in a later turn. Its error: the change is not done, or `isUncertain`. Must not throw.
   * @returns false, having done nothing, when the change has to wait for something else.
   */
  updateSync<T>(change: Change<T>, done: (error: unknown, value: T | undefined) => void): boolean {
    const { keys, startTs, depthTs = startTs, readTs, mayAccess } = change
    if (!this.#table.changesTogether || this.#decisions.hasReaders || mayAccess !== undefined) return false
    if (this.#safePoint.isStale || (readTs ?? 0) > this.#source.last) return false
    const depth = deepest(change)
    const held: Held[] = []
    for (const key of keys) {
      const row = this.#table.guess(key, depth, depthTs)
      if (row?.revision === undefined || row.lock !== undefined || this.#table.isFull(row)) return false
      held.push({ row, isGuess: true, landed: undefined })
    }
    const texts = keys.map(keyText)
    if (!this.latches.take(texts)) return false
    const ended = (error: unknown, value?: T): void => {
      this.latches.release(texts)
      done(error, value)
    }
    this.#commitAtOnce([...keys.keys()], held, change, false).then((outcome) => {
      if (outcome?.decision !== undefined) ended(undefined, outcome.decision.value)
      else ended(outcome?.mayHaveLanded ? mayBeDone() : contended())
    }, ended)
    return true
  }

  async #update<T>(change: Change<T>): Promise<T> {
    const { keys, startTs, depthTs = startTs, readTs } = change
    if (readTs !== undefined) await this.observeRead(readTs)
    const depth = deepest(change)
    const held: Held[] = keys.map((key) => {
      const row = this.#table.guess(key, depth, depthTs)
      return { row, isGuess: row !== undefined, landed: undefined }
    })
    const deadlineMs = performance.now() + CONTENDED_MS_MAX
    const backoff = new Backoff(2, 200)
    let atOnceLeft = change.decideAtOnce !== undefined && this.#table.changesTogether ? AT_ONCE_MAX : 0
    for (let isRepeat = false; ; ) {
      const plan: Plan<T> | undefined = await this.#plan(change, held, depth, isRepeat)
      if (plan === undefined) continue
      const atOnce =
        atOnceLeft-- > 0 ? await this.#commitAtOnce([...plan.toWrite.keys()], held, change, isRepeat) : undefined
      if (atOnce?.decision !== undefined) return atOnce.decision.value
      if (atOnce?.isGivenUp) atOnceLeft = 0
      const written: Written = atOnce ?? (await this.#carryOut(plan, held, change))
      if (written.isWhole) {
        await plan.decision.observed
        return plan.decision.value
      }
      isRepeat ||= written.mayHaveLanded
      if (performance.now() > deadlineMs) {
        await this.#takeBack(held)
        // The deciding row may be written, and the end of a transaction cannot be taken back.
        const mayHaveLanded = atOnce?.mayHaveLanded || (isRepeat && ![...plan.toWrite.values()].every(onlyLocks))
        throw mayHaveLanded ? mayBeDone() : contended()
      }
      await backoff.wait()
    }
  }

  /**
   * Reads missing rows, and decides.
   * @returns undefined when the decision rested on guesses, which are forgotten now.
   * @throws the error of a decision that rested on none.
   */
  async #plan<T>(
    change: Change<T>,
    held: readonly Held[],
    depth: HistoryDepth,
    isRepeat: boolean,
  ): Promise<Plan<T> | undefined> {
    const { keys, startTs, depthTs = startTs, mayAccess } = change
    const rows = await this.#complete(keys, held, depth, depthTs)
    const guard = mayAccess && (await this.#guardOf(change, rows))
    // Must follow the reads: whatever a collection has removed from the rows since is below this safe point.
    const refreshed = this.#safePoint.fresh()
    if (refreshed !== undefined) await refreshed
    const decision = decided(change, rows, isRepeat)
    if (!decision.ok) {
      if (forgetGuesses(held, () => true)) return undefined
      for (const { key, lock } of rows) if (lock !== undefined && lock.startTs !== startTs) this.#contended.add(key)
      await this.#takeBack(held)
      // An earlier try may have been done and collected since, so this is no refusal.
      if (isRepeat && isKvError(decision.error, 'ts_below_safe_point'))
        throw new KvError('storage_unavailable', 'the change may have been done before the safe point passed it', {})
      throw decision.error
    }
    const toWrite = this.#writesOf(change, decision, held, guard)
    // An unchanged row, too, must be as the decision saw it.
    if (forgetGuesses(held, (_, i) => !toWrite.has(i))) return undefined
    if (decision.onePc !== undefined)
      for (const [i, mutations] of toWrite) {
        const one = held[i] as Held
        if (!mutations.some(isPut) || !this.#table.isFull(one.row as KnownRow)) continue
        if (await this.#hasRoom(one, depth, depthTs)) return undefined
        await this.#takeBack(held)
        throw new KvError(
          'overloaded',
          `the versions of the key ${printKey(keys[i] as Uint8Array)} are too many bytes`,
          {},
        )
      }
    const first = primaryOf(rows, toWrite, startTs) ?? this.#contendedOf(rows, toWrite)
    return { decision, toWrite, first }
  }

  /** Reads a full row again, and collects it. @returns false when it is full all the same. */
  async #hasRoom(one: Held, depth: HistoryDepth, ts: Timestamp): Promise<boolean> {
    const { key } = one.row as KnownRow
    if (!one.isGuess) await this.#collection.collectRow(key)
    const [row] = await this.#table.read([key], depth, ts)
    const wasGuess = one.isGuess
    one.row = row
    one.isGuess = false
    return wasGuess || row === undefined || !this.#table.isFull(row)
  }

  /**
   * Commits a transaction of which nothing is written yet in one phase: the table locks the rows, and then the commit_ts is taken.
   * So whoever reads at or above it meets the table's locks, and waits (`RowsRequest.settled`). What other servers have to see
   * before the commit, such as hints at observed keys and the decision for readers of changes, needs locks of its own.
   * @param places indexes of the rows to write.
   * @returns undefined when the transaction has to commit in two phases.
   */
  async #commitAtOnce<T>(
    places: readonly number[],
    held: readonly Held[],
    { keys, decideAtOnce }: Change<T>,
    isRepeat: boolean,
  ): Promise<(Written & { readonly decision?: Decided<T> | undefined; readonly isGivenUp?: boolean }) | undefined> {
    if (decideAtOnce === undefined || places.length === 0) return undefined
    if (held.some(({ landed }) => landed !== undefined) || this.#decisions.hasReaders) return undefined
    const written = places.map((i) => keys[i] as Uint8Array)
    const rows = held.map(({ row }) => row as KnownRow)
    let decision: Decided<T> | undefined
    let isGivenUp = false
    const decide = async (): Promise<readonly (readonly Mutation[])[] | undefined> => {
      const commitTs = await this.#source.next()
      await this.#decisions.before(commitTs, this.#source.last)
      isGivenUp = this.#decisions.hasReaders || (await this.#hints.areNeeded(written, commitTs))
      if (isGivenUp) return undefined
      decision = decideAtOnce(rows.map(viewOf), isRepeat, commitTs)
      isGivenUp = decision === undefined
      const byKey = decision && groupBy(decision.mutations, ({ key }) => keyText(key))
      return byKey && written.map((key) => byKey.get(keyText(key)) ?? [])
    }
    if (await this.#hints.areNeeded(written, this.#source.last)) return undefined
    const wasGuess = places.some((i) => held[i]?.isGuess)
    const changed = await this.#table.changeTogether(
      places.map((i) => rows[i] as KnownRow),
      decide,
    )
    if (changed.isWhole) {
      for (const key of written) this.onUnlock(key)
      return { isWhole: true, mayHaveLanded: true, decision }
    }
    for (const i of places) {
      const one = held[i] as Held
      one.row = undefined
      one.isGuess = false
    }
    if (isGivenUp) return { isWhole: false, mayHaveLanded: false, isGivenUp }
    if (wasGuess) this.#table.counts.lostGuesses++
    return { isWhole: false, mayHaveLanded: changed.wasUncertain }
  }

  /** Writes the rows of a plan, the first one before the others, and the hints at their changes. */
  async #carryOut<T>(
    { decision: { mutations, onePc }, toWrite, first }: Plan<T>,
    held: readonly Held[],
    change: Change<T>,
  ): Promise<Written> {
    const { startTs, markDepth = 0 } = change
    const marking = markingKeys(onePc)
    this.#hints.requireFew(marking)
    // Repeated with each try, so that the locks are there while the hints are written.
    const hinting = this.#hints.ofCommits(mutations, markDepth)
    if (hinting !== undefined) await hinting
    const parts =
      first === undefined ? [[...toWrite.keys()]] : [[first], [...toWrite.keys()].filter((i) => i !== first)]
    let mayHaveLanded = false
    for (const [i, part] of parts.entries()) {
      const write = (): Promise<WrittenRows> => this.#write(part, toWrite, held)
      const outcome =
        i === 0 && first !== undefined ? await this.#logged(first, toWrite, held, change, write) : await write()
      mayHaveLanded ||= outcome.hasLanded || outcome.wasUncertain
      if (!outcome.isWhole) return { isWhole: false, mayHaveLanded }
    }
    // Even if the locks were there already: their writer may have died before the hints, or what tells readers of changes.
    const { last } = this.#source
    const noting = onePc && this.#decisions.prewritten(expiringKeys(onePc), startTs, last)
    if (noting !== undefined) await noting
    if (marking.length > 0) await this.#hints.ofLocks(marking, { startTs, last, depth: markDepth })
    this.#hints.committed(mutations)
    return { isWhole: true, mayHaveLanded }
  }

  /** Writes the first row, and logs it before and afterwards if it commits a primary and somebody reads the changes. */
  async #logged<T>(
    first: number,
    toWrite: ReadonlyMap<number, readonly Mutation[]>,
    held: readonly Held[],
    { startTs, keys, txnKeys }: Change<T>,
    write: () => Promise<WrittenRows>,
  ): Promise<WrittenRows> {
    const commitTs = commitTsIn(toWrite.get(first) ?? [], startTs)
    const row = held[first]?.row
    if (commitTs === undefined || row?.lock?.startTs !== startTs) return write()
    const { key: primary, lock } = row
    await this.#decisions.before(commitTs, this.#source.last)
    if (!this.#decisions.isLogged(commitTs)) return write()
    // Whoever looks for keys, or writes rows, may take longer than readers leave the commit_ts open.
    const release = await this.#decisions.hold({ primary, startTs, commitTs })
    try {
      const committed = keys.filter((_, i) => commitTsIn(toWrite.get(i) ?? [], startTs) !== undefined)
      const named = [...new Map([...committed, ...(txnKeys ?? [])].map((key) => [keyText(key), key])).values()]
      // A client that does not name all keys has them looked for. All locks of the transaction stand before it commits.
      const isWhole = lock.txnSize > 0 ? named.length >= lock.txnSize : txnKeys !== undefined
      const all = isWhole ? named : ((await this.lockedBy(new Set([startTs]))).get(startTs) ?? named)
      if (this.#decisions.mayLackExpiries(startTs)) {
        const locked = await this.#table.read(all, 'none', startTs)
        await this.#decisions.putExpiries(locked.flatMap((each) => expiryOf(each, startTs)))
      }
      return await this.#decisions.around({ startTs, commitTs, primary, keys: all }, write)
    } finally {
      release()
    }
  }

  async #complete(
    keys: readonly Uint8Array[],
    held: readonly Held[],
    depth: HistoryDepth,
    ts: Timestamp,
  ): Promise<KnownRow[]> {
    const missing = held.flatMap(({ row }, i) => (row === undefined ? [i] : []))
    if (missing.length > 0) {
      const read = await this.#table.read(
        missing.map((i) => keys[i] as Uint8Array),
        depth,
        ts,
      )
      for (const [at, i] of missing.entries()) {
        const one = held[i] as Held
        one.row = read[at] as KnownRow
        one.isGuess = false
      }
    }
    return held.map(({ row }) => row as KnownRow)
  }

  /** @throws KvError `forbidden` */
  #writesOf<T>(
    { startTs, keys }: Change<T>,
    { mutations, onePc }: Decided<T>,
    held: readonly Held[],
    guard: AccessGuard | undefined,
  ): Map<number, readonly Mutation[]> {
    guard?.(
      mutations,
      held.map(({ row }) => viewOf(row as KnownRow)),
    )
    const indexOf = new Map(keys.map((key, i) => [keyText(key), i]))
    const toWrite = groupBy(mutations, ({ key }) => indexOf.get(keyText(key)) as number)
    // A lock of an earlier copy of this prewrite gets a new revision, so that the copy can no longer take it back.
    if (onePc !== undefined)
      for (const [i, { row, landed }] of held.entries())
        if (row?.lock?.startTs === startTs && landed === undefined && !toWrite.has(i)) toWrite.set(i, [])
    return toWrite
  }

  /**
   * The row to lock before the others. Otherwise transactions of several servers that want the same rows would each lock some of
   * them, and none would get all.
   */
  #contendedOf(rows: readonly KnownRow[], toWrite: ReadonlyMap<number, readonly Mutation[]>): number | undefined {
    const locked = [...toWrite].flatMap(([i, mutations]) =>
      mutations.some(({ type }) => type === 'put-lock') ? [i] : [],
    )
    if (locked.length < 2) return undefined
    const at = this.#contended.smallestOf(locked.map((i) => (rows[i] as KnownRow).key))
    return at === undefined ? undefined : locked[at]
  }

  async #write(
    part: readonly number[],
    toWrite: ReadonlyMap<number, readonly Mutation[]>,
    held: readonly Held[],
  ): Promise<WrittenRows> {
    let [isWhole, hasLanded, wasUncertain] = [true, false, false]
    for (let from = 0; from < part.length; from += ROWS_AT_ONCE) {
      const some = part.slice(from, from + ROWS_AT_ONCE)
      const settled = await Promise.allSettled(
        some.map(async (i) => {
          const one = held[i] as Held
          const before = one.row as KnownRow
          const mutations = toWrite.get(i) ?? []
          const wasGuess = one.isGuess
          one.row = undefined
          const changed = await this.#table.change(before, mutations)
          wasUncertain ||= changed.wasUncertain
          if (changed.row === undefined) {
            isWhole = false
            if (wasGuess) this.#table.counts.lostGuesses++
            else this.#contended.add(before.key)
            return
          }
          hasLanded = true
          one.row = changed.row
          one.isGuess = false
          const { landed } = one
          one.landed = { before: landed?.before ?? before, mutations: [...(landed?.mutations ?? []), ...mutations] }
          if (changed.row.lock === undefined) this.onUnlock(before.key)
        }),
      )
      const failed = settled.find((each) => each.status === 'rejected')
      if (failed !== undefined) throw failed.reason
    }
    return { isWhole, hasLanded, wasUncertain }
  }

  /**
   * Restores the locks of rows that a refused request has changed. Rows that others have changed since stay.
   * @throws KvError `storage_unavailable` when some locks may be left, which the transaction then has to roll back.
   */
  async #takeBack(held: readonly Held[]): Promise<void> {
    let isWhole = held.every(({ row, landed }) => row !== undefined || landed === undefined)
    const all = held.filter(({ row, landed }) => row !== undefined && landed !== undefined)
    for (let from = 0; from < all.length; from += ROWS_AT_ONCE) {
      const settled = await Promise.allSettled(
        all.slice(from, from + ROWS_AT_ONCE).map(async ({ row, landed }) => {
          if (row === undefined || landed === undefined) return true
          const { before, mutations } = landed
          if (!onlyLocks(mutations)) return true
          const { key } = row
          const undone: Mutation[] = [
            before.lock === undefined ? { type: 'delete-lock', key } : { type: 'put-lock', key, lock: before.lock },
          ]
          for (const mutation of mutations)
            if (mutation.type === 'put-value') undone.push({ type: 'delete-value', key, startTs: mutation.startTs })
          const { row: after } = await this.#table.change(row, undone)
          if (after !== undefined && after.lock === undefined) this.onUnlock(key)
          return after !== undefined
        }),
      )
      isWhole &&= settled.every((each) => each.status === 'fulfilled' && each.value)
    }
    if (!isWhole) throw new KvError('storage_unavailable', 'locks of a refused request may be left', {})
  }

  async #guardOf<T>(
    { startTs, mayAccess, keys }: Change<T>,
    rows: readonly KnownRow[],
  ): Promise<AccessGuard | undefined> {
    if (mayAccess === undefined) return undefined
    const known = new Map(rows.map((row) => [keyText(row.key), row]))
    const primaries = new Map<string, Uint8Array>()
    for (const { lock } of rows)
      if (lock?.startTs === startTs && !known.has(keyText(lock.primary)))
        primaries.set(keyText(lock.primary), lock.primary)
    for (const row of await this.#table.read([...primaries.values()], 'txn', startTs)) known.set(keyText(row.key), row)
    const lockOf = (key: Uint8Array): Lock | undefined => known.get(keyText(key))?.lock
    const historyOf = (key: Uint8Array) => this.historyOf(key, startTs)
    return accessGuard({ lockOf, historyOf }, keys, startTs, mayAccess)
  }
}

function onlyLocks(mutations: readonly Mutation[]): boolean {
  return mutations.every(({ type }) => type === 'put-lock' || type === 'put-value')
}

function isPut(mutation: Mutation): boolean {
  return mutation.type === 'put-lock' && mutation.lock.type === 'put'
}

/** A thrown refusal may rest on a guess as well. */
function decided<T>({ decide }: Change<T>, rows: readonly KnownRow[], isRepeat: boolean): Decision<T> {
  try {
    return decide(rows.map(viewOf), isRepeat)
  } catch (error) {
    if (error instanceof KvError) return { ok: false, error }
    throw error
  }
}

function markingKeys(request: PrewriteRequest | undefined): readonly Uint8Array[] {
  if (request === undefined) return []
  const marking = request.mutations.filter(({ op }) => op === 'put' || op === 'insert' || op === 'delete')
  return marking.map(({ key }) => key)
}

function expiryOf({ key, lock }: KnownRow, startTs: Timestamp): ExpiryRow[] {
  return lock?.startTs === startTs && lock.expireTs > 0 ? [{ key, ts: lock.expireTs }] : []
}

function expiringKeys({ mutations }: PrewriteRequest): readonly ExpiryRow[] {
  return mutations.flatMap(({ key, expireTs = 0 }) => (expireTs > 0 && !isReserved(key) ? [{ key, ts: expireTs }] : []))
}

/** The commit_ts at which the mutations commit the transaction on their row. */
function commitTsIn(mutations: readonly Mutation[], startTs: Timestamp): Timestamp | undefined {
  for (const mutation of mutations)
    if (mutation.type === 'put-write' && mutation.isFlag !== true && mutation.write.type !== 'rollback')
      if (mutation.write.startTs === startTs) return mutation.write.commitTs
  return undefined
}

const DEPTHS: readonly HistoryDepth[] = ['none', 'since', 'txn', 'data', 'all']

function mayBeDone(): KvError {
  const detail = 'too many other requests change the same keys: the change may or may not be done'
  return new KvError('storage_unavailable', detail, {})
}

function contended(): KvError {
  return new KvError('overloaded', 'too many other requests change the same keys', {})
}

/** The depth that serves all keys of a change, whatever their locks. */
function deepest<T>({ keys, depth }: Change<T>): HistoryDepth {
  if (typeof depth === 'string') return depth
  let deepest = 0
  for (let i = 0; i < keys.length; i++) deepest = Math.max(deepest, DEPTHS.indexOf(depth(i, undefined)))
  return DEPTHS[deepest] as HistoryDepth
}

function forgetGuesses(held: readonly Held[], isMeant: (one: Held, i: number) => boolean): boolean {
  let hasForgotten = false
  for (const [i, one] of held.entries()) {
    if (!one.isGuess || !isMeant(one, i)) continue
    one.row = undefined
    one.isGuess = false
    hasForgotten = true
  }
  return hasForgotten
}

/** The row whose change ends the transaction for all others. */
function primaryOf(
  rows: readonly KnownRow[],
  toWrite: ReadonlyMap<number, readonly Mutation[]>,
  startTs: Timestamp,
): number | undefined {
  for (const [i, mutations] of toWrite) {
    const { key, lock } = rows[i] as KnownRow
    const isPrimary = lock?.startTs === startTs && sameKey(lock.primary, key)
    if (isPrimary && mutations.some(({ type }) => type === 'delete-lock' || type === 'put-write')) return i
  }
  return undefined
}
