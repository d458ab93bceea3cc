import { keyText } from '../../src/bytes/key-text.js'
import { OBSERVER_RECORDS } from '../../src/observers/registration.js'
import type { Ack, Failure, StoredNotification } from '../../src/observers/rules/cell.js'
import { decodeAck, decodeFailure, decodeNotification } from '../../src/observers/rules/codec/cell.js'
import type { Observer } from '../../src/observers/rules/observer.js'
import { keyRangeOf } from '../../src/percolator/given-range.js'
import { contains } from '../../src/percolator/range-index.js'
import { CELL_KINDS, idOfCell, keyOfCell } from '../../src/store/cell-names.js'
import type { SystemWrite } from '../../src/store/system-records.js'
import type { Timestamp } from '../../src/timestamp.js'
import { Violations } from './violations.js'

/** A Put or Delete that came to be seen. */
export interface DataCommit {
  readonly key: string
  readonly commitTs: Timestamp
  readonly startTs: Timestamp
}

/** A committed run on one cell. */
export interface Run {
  readonly observer: string
  readonly key: string
  readonly ack: Ack
  /** commit_ts of the run before it; 0: it is the first. */
  readonly previousTs: Timestamp
}

interface Change {
  readonly ts: Timestamp
  isCovered: boolean
}

interface CellState {
  readonly changes: Change[]
  notification: StoredNotification | undefined
  failure: Failure | undefined
  /** commit_ts of the last run or skip, also when its acknowledgement was collected. */
  lastTs: Timestamp
  /** Covered up to here, by a run or a skip. */
  coveredTo: Timestamp
}

interface RegisteredObserver extends Observer {
  readonly sinceTs: Timestamp
}

interface Batch {
  readonly id: object
  readonly commits: readonly DataCommit[]
  readonly records: readonly SystemWrite[]
}

/** What a batch does to one cell. */
interface Touched {
  readonly id: Timestamp
  readonly key: string
  readonly commits: DataCommit[]
  /** null: removed. */
  notification?: StoredNotification | null
  ack?: Ack | null
  failure?: Failure | null
}

/** What runs have covered. */
export interface CellsSeen {
  /** By name. */
  readonly observers: readonly string[]
  readonly runs: readonly Run[]
  /** Cells of registered observers that are not at rest, for a message. */
  restless(): string[]
  /** Cells whose keys have expired up to `ts`, and whose observers were not told. */
  untold(ts: Timestamp, keys: readonly string[]): string[]
  /** Up to where a cell is covered; 0 for one that no run has seen. */
  coveredTo(observer: string, key: string): Timestamp
  /** commit_ts of a notification that was made above `floor`, and answered with `ts`. */
  notifiedAt(observer: string, key: string, floor: Timestamp, ts: Timestamp): Timestamp
}

/**
 * The cells of observers, batch by batch as they come to be seen, beside the changes that runs have covered. Since a crash leaves
 * whole batches, what holds after each batch holds after each crash:
 *
 * - every change of an observed range marks its cell in its own batch, but for a run's own write of the key that it acknowledges;
 * - the notification stands exactly while a change is not covered, or the cell is parked, and is not older than the newest such change;
 * - every run covers a change that no run before it covered, and has seen the commit of that one.
 */
export class CellLedger implements CellsSeen {
  runs: Run[] = []
  readonly #violations: Violations
  readonly #expiriesOf: (key: string) => readonly Timestamp[]
  #batches: Batch[] = []
  #observers = new Map<string, RegisteredObserver>()
  #cells = new Map<string, CellState>()

  /** @param expiriesOf when versions of a key have expired, and will. */
  constructor(violations: Violations, expiriesOf: (key: string) => readonly Timestamp[]) {
    this.#violations = violations
    this.#expiriesOf = expiriesOf
  }

  /** @param id names the batch to `lost`. */
  shown(id: object, commits: readonly DataCommit[], records: readonly SystemWrite[]): void {
    const batch = { id, commits, records }
    this.#batches.push(batch)
    this.#apply(batch, this.#violations)
  }

  /** A crash took the batch. */
  lost(id: object): void {
    this.#batches = this.#batches.filter((batch) => batch.id !== id)
    this.#observers = new Map()
    this.#cells = new Map()
    this.runs = []
    const told = new Violations()
    for (const batch of this.#batches) this.#apply(batch, told)
  }

  get observers(): readonly string[] {
    return [...this.#observers.keys()].sort()
  }

  restless(): string[] {
    return [...this.#observers.values()].flatMap(({ id, name }) =>
      [...this.#cells].flatMap(([cell, { changes, notification, failure }]) => {
        if (!cell.startsWith(`${id} `)) return []
        const uncovered = changes.filter(({ isCovered }) => !isCovered).map(({ ts }) => ts)
        if (uncovered.length === 0 && notification === undefined) return []
        return `${cell.slice(`${id} `.length)} for ${name} at ${uncovered}${failure ? `, which failed (${failure.error})` : ''}`
      }),
    )
  }

  untold(ts: Timestamp, keys: readonly string[]): string[] {
    return [...this.#observers.values()].flatMap(({ name, range, sinceTs }) =>
      keys
        .filter((key) => contains(range, Buffer.from(key, 'latin1')))
        .flatMap((key) =>
          this.#expiriesOf(key)
            .filter((at) => at > sinceTs && at <= ts && at > this.coveredTo(name, key))
            .map((at) => `${key} for ${name} at ${at}`),
        ),
    )
  }

  coveredTo(observer: string, key: string): Timestamp {
    const id = this.#observers.get(observer)?.id
    return this.#cells.get(`${id} ${key}`)?.coveredTo ?? 0
  }

  notifiedAt(_observer: string, _key: string, _floor: Timestamp, ts: Timestamp): Timestamp {
    return ts
  }

  #apply({ commits, records }: Batch, violations: Violations): void {
    const touched = new Map<string, Touched>()
    const touch = (id: Timestamp, key: string): Touched => {
      const name = `${id} ${key}`
      const known = touched.get(name) ?? { id, key, commits: [] }
      touched.set(name, known)
      return known
    }
    for (const { name, value } of records) {
      const kind = CELL_KINDS.find((each) => name.startsWith(`${each}/`))
      const id = kind && idOfCell(kind, name)
      if (kind === undefined || id === undefined) continue
      const cell = touch(id, keyText(keyOfCell(kind, name)))
      if (kind === 'notify') cell.notification = value === undefined ? null : decodeNotification(value)
      if (kind === 'ack') cell.ack = value === undefined ? null : decodeAck(value)
      if (kind === 'failure') cell.failure = value === undefined ? null : decodeFailure(value)
    }
    for (const commit of commits)
      for (const { id, range, sinceTs } of this.#observers.values())
        if (commit.commitTs > sinceTs && contains(range, Buffer.from(commit.key, 'latin1')))
          touch(id, commit.key).commits.push(commit)
    for (const cell of touched.values()) this.#change(cell, violations)
    for (const record of records) this.#register(record)
  }

  #register({ name: record, value }: SystemWrite): void {
    if (!record.startsWith(OBSERVER_RECORDS.prefix)) return
    const name = record.slice(OBSERVER_RECORDS.prefix.length)
    if (value === undefined) return void this.#observers.delete(name)
    const stored = OBSERVER_RECORDS.decode(name, value)
    if (stored === undefined) return
    const { id, sinceTs, range, options } = stored
    this.#observers.set(name, { id, name, sinceTs, range: keyRangeOf(range), maxDepth: options.maxDepth })
  }

  #change({ id, key, commits, notification, ack, failure }: Touched, told: Violations): void {
    const observer = [...this.#observers.values()].find((each) => each.id === id)
    // Cells of an observer whose registration failed, or that is being registered, may be marked or not.
    const violations = observer === undefined ? new Violations() : told
    const name = `${id} ${key}`
    const what = `the cell of ${key} for ${observer?.name ?? id}`
    const none: CellState = { changes: [], notification: undefined, failure: undefined, lastTs: 0, coveredTo: 0 }
    const cell = this.#cells.get(name) ?? none
    this.#cells.set(name, cell)
    // A run may cover what has expired before that is marked.
    if (ack && ack.startTs > 0)
      for (const ts of this.#expiriesOf(key))
        if (
          ts > Math.max(cell.coveredTo, observer?.id ?? 0) &&
          ts <= ack.ackTs &&
          !cell.changes.some((each) => each.ts === ts)
        )
          cell.changes.push({ ts, isCovered: false })
    if (ack) this.#acknowledge(cell, ack, { what, observer: observer?.name ?? '', key, violations })
    for (const { commitTs, startTs } of commits)
      if (ack?.startTs !== startTs) cell.changes.push({ ts: commitTs, isCovered: false })
    if (notification !== undefined) cell.notification = notification ?? undefined
    if (failure !== undefined) cell.failure = failure ?? undefined
    for (const standing of [notification, failure?.parkedTs ? failure : undefined]) {
      if (!standing || cell.changes.some(({ ts }) => ts === standing.changeTs)) continue
      const isOfRow = standing.kind === 'put' || standing.kind === 'delete'
      if (isOfRow && standing.changeTs > (observer?.sinceTs ?? 0))
        violations.add('mark', `${what} has a ${standing.kind} at ${standing.changeTs}, which nobody has committed`)
      if (standing.kind === 'expired') {
        if (!this.#expiriesOf(key).includes(standing.changeTs))
          violations.add('mark', `${what} is marked as expired at ${standing.changeTs}; no version expired then`)
        if (standing.changeTs <= cell.coveredTo)
          violations.add(
            'mark',
            `${what} is marked as expired at ${standing.changeTs}, and is covered up to ${cell.coveredTo}`,
          )
      }
      cell.changes.push({ ts: standing.changeTs, isCovered: false })
    }
    this.#check(cell, what, violations)
  }

  #acknowledge(
    cell: CellState,
    ack: Ack,
    { what, observer, key, violations }: { what: string; observer: string; key: string; violations: Violations },
  ): void {
    const covered = cell.changes.filter(({ ts, isCovered }) => !isCovered && ts <= ack.ackTs)
    for (const change of covered) change.isCovered = true
    if (ack.startTs > 0) {
      if (covered.length === 0) violations.add('run', `the run of ${ack.startTs} on ${what} covers nothing new`)
      if (ack.ackTs < cell.lastTs)
        violations.add(
          'run',
          `the run of ${ack.startTs} on ${what} has not seen the one that committed at ${cell.lastTs}`,
        )
      this.runs.push({ observer, key, ack, previousTs: cell.lastTs })
    }
    cell.lastTs = ack.commitTs
    cell.coveredTo = Math.max(cell.coveredTo, ack.ackTs)
  }

  #check({ changes, notification, failure }: CellState, what: string, violations: Violations): void {
    const uncovered = changes.filter(({ isCovered }) => !isCovered).map(({ ts }) => ts)
    const newest = Math.max(0, ...uncovered)
    const isParked = notification === undefined && failure !== undefined && failure.parkedTs > 0
    if (notification !== undefined && newest === 0)
      violations.add('notification', `${what} has a notification, and all is covered`)
    if (notification !== undefined && notification.changeTs < newest)
      violations.add(
        'notification',
        `${what} has a notification at ${notification.changeTs}, which hides the change at ${newest}`,
      )
    if (notification === undefined && !isParked && newest > 0)
      violations.add('notification', `${what} has no notification, and a change at ${uncovered} is not covered`)
    if (isParked && newest === 0) violations.add('notification', `${what} is parked, and all is covered`)
  }
}
