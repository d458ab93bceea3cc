import type { Changes } from '../../src/changes/changes.js'
import { ChangeFilter } from '../../src/changes/rules/change-filter.js'
import type { FeedEvent, FeedTxn, Selection } from '../../src/changes/rules/changes-api.js'
import { rangesOf } from '../../src/changes/selection.js'
import { isKvError } from '../../src/errors/kv-error.js'
import type { Timestamp } from '../../src/timestamp.js'
import { text } from '../store/support.js'

export interface FollowerOrder extends Selection {
  readonly keysOnly: boolean
  readonly oldValues: boolean
  /** Turns of the event loop that it rests after each batch. */
  readonly pauses: readonly number[]
  /** It hangs up after so many events, and goes on from there. */
  readonly hangUps: readonly number[]
}

/** What the follower had at a resolved_ts. */
export interface Copy {
  readonly ts: Timestamp
  readonly pairs: ReadonlyMap<string, string>
}

/** Keeps a copy of the selected keys: from a snapshot, then by changes, over hang-ups and collections. */
export class CopyingFollower {
  readonly copies: Copy[] = []
  /** Old values that are not those of the copy. */
  readonly olds: {
    readonly key: string
    readonly ts: Timestamp
    readonly before: string | undefined
    readonly copied: string | undefined
  }[] = []
  /** Breaches of what a stream promises. */
  readonly breaches: string[] = []
  /** Sessions that ended because changes were collected. */
  lost = 0
  sessions = 0
  readonly done: Promise<void>
  readonly #changes: Changes
  readonly #order: FollowerOrder
  readonly #filter: ChangeFilter
  #pairs = new Map<string, string>()
  /** Of `#pairs`: what a new session begins with. */
  #kept: { ts: Timestamp; pairs: Map<string, string> } | undefined
  #snapshotAfter: { ts: Timestamp; key: Uint8Array } | undefined
  #resolved: Timestamp = 0
  #lastTxn: FeedTxn | undefined
  #until = Number.POSITIVE_INFINITY
  #stop = (): void => {}

  constructor(changes: Changes, order: FollowerOrder) {
    this.#changes = changes
    this.#order = order
    this.#filter = new ChangeFilter(rangesOf(order))
    this.done = this.#run()
  }

  /** Ends once everything up to `ts` is copied. */
  async endAt(ts: Timestamp): Promise<void> {
    this.#until = ts
    if (this.#resolved >= ts) this.#stop()
    await this.done
  }

  async #run(): Promise<void> {
    while (this.#resolved < this.#until) {
      this.sessions++
      try {
        await this.#session(this.#order.hangUps[(this.sessions - 1) % (this.#order.hangUps.length + 1)])
      } catch (error) {
        if (!isKvError(error, 'ts_below_safe_point')) throw error
        this.lost++
        this.#kept = undefined
        this.#snapshotAfter = undefined
      }
    }
  }

  async #session(hangUpAfter = Number.POSITIVE_INFINITY): Promise<void> {
    const { pauses, hangUps: _, keysOnly, oldValues, ...selection } = this.#order
    const from = this.#snapshotAfter
    if (from === undefined) this.#pairs = new Map(this.#kept?.pairs)
    this.#lastTxn = undefined
    const origin =
      this.#kept !== undefined ? { sinceTs: this.#kept.ts } : from ? { snapshotAfter: from } : { snapshot: true }
    const events = this.#changes.stream({ ...selection, keysOnly, oldValues, heartbeatMs: 100, ...origin })
    this.#stop = () => void events.return()
    this.#resolved = this.#kept?.ts ?? 0
    let seen = 0
    for await (const batch of events) {
      for (const [i, event] of batch.entries()) {
        this.#apply(event, batch[i + 1])
        if (++seen >= hangUpAfter) return
      }
      if (this.#resolved >= this.#until) return
      for (let turns = pauses[seen % pauses.length] ?? 0; turns > 0; turns--)
        await new Promise((go) => setImmediate(go))
    }
  }

  #apply(event: FeedEvent, next: FeedEvent | undefined): void {
    switch (event.type) {
      case 'pair':
        this.#pairs.set(text(event.key), this.#order.keysOnly ? '' : text(event.value ?? Buffer.from('no value')))
        this.#snapshotAfter = { ts: event.ts, key: event.key }
        return
      case 'snapshot_end':
        this.#snapshotAfter = undefined
        this.#keep(event.ts)
        return
      case 'resolved':
        if (event.resolvedTs < this.#resolved)
          this.#breach(`resolved_ts fell from ${this.#resolved} to ${event.resolvedTs}`)
        if (this.#lastTxn?.isLast === false) this.#breach('a resolved within a transaction')
        this.#resolved = event.resolvedTs
        this.copies.push({ ts: event.resolvedTs, pairs: new Map(this.#pairs) })
        this.#keep(event.resolvedTs)
        return
      case 'txn': {
        this.#checkOrder(event)
        for (const change of event.changes) this.#change(change, event)
        this.#lastTxn = event
        const isLastOfTs = next !== undefined && (next.type !== 'txn' || next.commitTs > event.commitTs)
        if (isLastOfTs) this.#keep(event.commitTs)
      }
    }
  }

  #keep(ts: Timestamp): void {
    this.#kept = { ts, pairs: new Map(this.#pairs) }
  }

  #checkOrder(txn: FeedTxn): void {
    const last = this.#lastTxn
    if (txn.commitTs <= this.#resolved) this.#breach(`a change at ${txn.commitTs} after resolved ${this.#resolved}`)
    if (this.#kept === undefined) this.#breach('a change within the snapshot')
    if (txn.changes.length === 0) this.#breach('a transaction without changes')
    const isSame =
      last?.commitTs === txn.commitTs && last.startTs === txn.startTs && isOfExpiries(last) === isOfExpiries(txn)
    const order = last === undefined ? -1 : last.commitTs - txn.commitTs || last.startTs - txn.startTs
    if (order > 0 || (isSame && (last?.isLast !== false || txn.part !== (last.part ?? 0) + 1)))
      this.#breach(
        `${txn.commitTs} (${txn.startTs}, part ${txn.part}) after ${last?.commitTs} (${last?.startTs}, ${last?.part})`,
      )
    if (!isSame && (txn.part ?? 0) !== 0) this.#breach(`a transaction begins with part ${txn.part}`)
    if (!isSame && last?.isLast === false) this.#breach('a transaction is cut off')
    const keys = [
      ...(isSame ? [last?.changes.at(-1)?.key ?? Buffer.alloc(0)] : []),
      ...txn.changes.map(({ key }) => key),
    ]
    for (const [i, key] of keys.entries())
      if (i > 0 && Buffer.compare(keys[i - 1] as Uint8Array, key) >= 0)
        this.#breach(`the keys of ${txn.commitTs} are not in order`)
  }

  #change({ key, op, value, end, old }: FeedTxn['changes'][number], { commitTs }: FeedTxn): void {
    const name = text(key)
    if (op === 'delete_range') {
      for (const each of [...this.#pairs.keys()]) if (each >= name && each < text(end ?? key)) this.#pairs.delete(each)
      return
    }
    if (!this.#filter.hasKey(key)) this.#breach(`${name} was not asked for`)
    if (this.#order.oldValues !== (old !== undefined)) this.#breach(`the old value of ${name} at ${commitTs}`)
    if (this.#order.oldValues && !this.#order.keysOnly) {
      const before = old === null || old === undefined ? undefined : text(old.value)
      const copied = this.#pairs.get(name)
      if (before !== copied) this.olds.push({ key: name, ts: commitTs, before, copied })
    }
    if (op === 'put') this.#pairs.set(name, this.#order.keysOnly ? '' : text(value ?? Buffer.from('no value')))
    else this.#pairs.delete(name)
  }

  #breach(text: string): void {
    this.breaches.push(text)
  }
}

function isOfExpiries({ changes }: FeedTxn): boolean {
  return changes[0]?.op === 'expire'
}
