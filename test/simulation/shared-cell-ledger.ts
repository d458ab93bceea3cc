import { keyText } from '../../src/bytes/key-text.js'
import { OBSERVER_RECORDS } from '../../src/observers/registration.js'
import { ackedCell, decodeAckTs, notifiedCell } from '../../src/observers/rules/codec/cell-key.js'
import type { Observer } from '../../src/observers/rules/observer.js'
import { keyRangeOf } from '../../src/percolator/given-range.js'
import { contains } from '../../src/percolator/range-index.js'
import type { WriteRecord } from '../../src/percolator/write.js'
import { TIMESTAMP_MAX, type Timestamp } from '../../src/timestamp.js'
import type { CellsSeen, DataCommit, Run } from './cell-ledger.js'

/** What the ledger of rows knows. */
interface Rows {
  readonly keys: readonly string[]
  /** Puts and Deletes of a key. */
  dataOf(key: string): readonly DataCommit[]
  expiriesOf(key: string, since?: Timestamp): readonly Timestamp[]
  readonly violate: (kind: string, detail: string) => void
}

interface RegisteredObserver extends Observer {
  readonly sinceTs: Timestamp
}

interface AckCommit {
  readonly ackTs: Timestamp
  readonly startTs: Timestamp
  readonly commitTs: Timestamp
}

/**
 * The cells of observers where several servers share a store: acknowledgements and notifications are rows in transactions, and
 * nothing says at each moment which cell is dirty. So all is judged by timestamps: each run covers a change that none before it
 * covered, and has seen the commit of that one; and at rest everything is covered.
 */
export class SharedCellLedger implements CellsSeen {
  readonly #rows: Rows
  readonly #observers = new Map<string, RegisteredObserver>()
  /** By id and key: by commit_ts. */
  readonly #acks = new Map<string, Map<Timestamp, AckCommit>>()
  readonly #notified = new Map<string, Set<Timestamp>>()

  constructor(rows: Rows) {
    this.#rows = rows
  }

  /** A record of the server. */
  recorded(systemName: string, value: Buffer | undefined): void {
    if (!systemName.startsWith(OBSERVER_RECORDS.prefix) || value === undefined) return
    const name = systemName.slice(OBSERVER_RECORDS.prefix.length)
    const stored = OBSERVER_RECORDS.decode(name, value)
    if (stored === undefined) return
    const { id, sinceTs, range, options } = stored
    // Whoever has registered it may have died before it took effect: it is no observer then.
    if (sinceTs === 0) return
    this.#observers.set(name, { id, name, sinceTs, range: keyRangeOf(range), maxDepth: options.maxDepth })
  }

  /** A row of a cell. */
  written(key: Uint8Array, { type, startTs, commitTs, shortValue }: WriteRecord): void {
    if (type !== 'put' || shortValue === undefined) return
    const acked = ackedCell(key)
    if (acked !== undefined) {
      const cell = `${acked.id} ${keyText(acked.key)}`
      const acks = this.#acks.get(cell) ?? new Map<Timestamp, AckCommit>()
      this.#acks.set(cell, acks.set(commitTs, { ackTs: decodeAckTs(shortValue), startTs, commitTs }))
    }
    const notified = notifiedCell(key)
    if (notified !== undefined) {
      const cell = `${notified.id} ${keyText(notified.key)}`
      this.#notified.set(cell, (this.#notified.get(cell) ?? new Set<Timestamp>()).add(commitTs))
    }
  }

  get observers(): readonly string[] {
    return [...this.#observers.keys()].sort()
  }

  /** The commits of all runs, and of skips, which nobody runs. */
  get runs(): readonly Run[] {
    return [...this.#observers.values()].flatMap((observer) =>
      this.#keysOf(observer).flatMap((key) => this.#runsOf(observer, key)),
    )
  }

  #runsOf(observer: RegisteredObserver, key: string): Run[] {
    const changes = this.#changesOf(observer, key)
    let [previousTs, covered] = [0, observer.sinceTs]
    return this.#acksOf(observer, key).map((ack) => {
      const what = `the run of ${ack.startTs} on the cell of ${key} for ${observer.name}`
      if (!changes.some((ts) => ts > covered && ts <= ack.ackTs))
        this.#rows.violate('run', `${what} covers nothing new`)
      if (ack.ackTs < previousTs)
        this.#rows.violate('run', `${what} has not seen the one that committed at ${previousTs}`)
      const run = { observer: observer.name, key, ack, previousTs }
      previousTs = ack.commitTs
      covered = Math.max(covered, ack.ackTs)
      return run
    })
  }

  restless(): string[] {
    return [...this.#observers.values()].flatMap((observer) =>
      this.#keysOf(observer).flatMap((key) => {
        const { name, sinceTs } = observer
        const covered = Math.max(sinceTs, this.coveredTo(name, key))
        const expiries = new Set(this.#rows.expiriesOf(key)) // See `untold`.
        const left = this.#changesOf(observer, key).filter((ts) => ts > covered && !expiries.has(ts))
        return left.length === 0 ? [] : [`${key} for ${name} at ${left}`]
      }),
    )
  }

  untold(ts: Timestamp): string[] {
    return [...this.#observers.values()].flatMap((observer) =>
      this.#keysOf(observer).flatMap((key) => {
        const covered = Math.max(observer.sinceTs, this.coveredTo(observer.name, key))
        return this.#rows
          .expiriesOf(key, observer.sinceTs) // Nobody looks at what stood before.
          .filter((at) => at > covered && at <= ts)
          .map((at) => `${key} for ${observer.name} at ${at}`)
      }),
    )
  }

  coveredTo(observer: string, key: string): Timestamp {
    const registered = this.#observers.get(observer)
    const acks = registered === undefined ? [] : this.#acksOf(registered, key)
    return Math.max(0, ...acks.map(({ ackTs }) => ackTs))
  }

  /** Each key has one of its own, and the answer is the highest of them. */
  notifiedAt(observer: string, key: string, floor: Timestamp, ts: Timestamp): Timestamp {
    const all = [...(this.#notified.get(`${this.#observers.get(observer)?.id} ${key}`) ?? [])]
    return Math.min(TIMESTAMP_MAX, ...all.filter((at) => at > floor && at <= ts))
  }

  #acksOf({ id }: RegisteredObserver, key: string): AckCommit[] {
    return [...(this.#acks.get(`${id} ${key}`)?.values() ?? [])].sort((a, b) => a.commitTs - b.commitTs)
  }

  #keysOf({ id, range }: RegisteredObserver): string[] {
    const own = `${id} `
    const named = [...this.#acks.keys(), ...this.#notified.keys()].filter((cell) => cell.startsWith(own))
    const keys = [...this.#rows.keys.filter((key) => contains(range, Buffer.from(key, 'latin1')))]
    return [...new Set([...keys, ...named.map((cell) => cell.slice(own.length))])]
  }

  /** What a run writes itself is no change of the cell that it acknowledges. */
  #changesOf({ id }: RegisteredObserver, key: string): Timestamp[] {
    const runs = new Set([...(this.#acks.get(`${id} ${key}`)?.values() ?? [])].map(({ startTs }) => startTs))
    const data = this.#rows.dataOf(key).filter(({ startTs }) => !runs.has(startTs))
    const notified = this.#notified.get(`${id} ${key}`) ?? []
    return [...data.map(({ commitTs }) => commitTs), ...this.#rows.expiriesOf(key), ...notified]
  }
}
