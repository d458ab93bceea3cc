import type { Change } from '../percolator/change.js'
import type { Timestamp } from '../timestamp.js'
import type { FeedChange, FeedEvent } from './rules/changes-api.js'

export type TxnEvent = Extract<FeedEvent, { readonly type: 'txn' }>

/** Names and punctuation of one change in an answer. */
const CHANGE_BYTES = 128
/** Objects of one change in memory, measured, without `CHANGE_BYTES`. */
const CHANGE_OBJECTS = 320
const TXN_OBJECTS = 200

export function memoryOf(change: Change): number {
  return changeBytes(change) + CHANGE_OBJECTS
}

export function changeBytes(change: Change): number {
  if (change.type === 'delete_range') return CHANGE_BYTES + change.key.length + change.end.length
  if (change.type === 'expire') return CHANGE_BYTES + change.key.length
  return CHANGE_BYTES + change.key.length + (change.value?.length ?? 0)
}

export function feedChangeOf(change: Change, keysOnly: boolean): FeedChange {
  const { type: op, key } = change
  if (change.type === 'delete_range') return { key, op, end: change.end }
  if (change.type === 'expire') return { key, op, expireTs: change.expireTs }
  const { value, expireTs } = change
  if (value === undefined || keysOnly) return { key, op }
  return expireTs === undefined ? { key, op, value } : { key, op, value, expireTs }
}

/**
 * The changes of a transaction, in order: all of them, or those in a filter. All streams share its event, so that the encoded
 * bytes can be cached by the object.
 */
export class CommittedTxn {
  readonly changes: readonly Change[]
  #bytes = -1
  #event: TxnEvent | undefined
  #keysEvent: TxnEvent | undefined

  /** @param changes at least one. */
  constructor(changes: readonly Change[]) {
    this.changes = changes
  }

  get commitTs(): Timestamp {
    return (this.changes[0] as Change).commitTs
  }

  get bytes(): number {
    if (this.#bytes === -1) {
      this.#bytes = 0
      for (const change of this.changes) this.#bytes += changeBytes(change)
    }
    return this.#bytes
  }

  /** Memory that it takes, in bytes. */
  get memory(): number {
    return this.bytes + this.changes.length * CHANGE_OBJECTS + TXN_OBJECTS
  }

  event(keysOnly: boolean): TxnEvent {
    if (keysOnly) this.#keysEvent ??= this.#make(true)
    else this.#event ??= this.#make(false)
    return (keysOnly ? this.#keysEvent : this.#event) as TxnEvent
  }

  /** Drops the events; they are made again when a stream asks for them. */
  forgetEvents(): void {
    this.#event = undefined
    this.#keysEvent = undefined
  }

  #make(keysOnly: boolean): TxnEvent {
    const { commitTs, startTs } = this.changes[0] as Change
    return { type: 'txn', commitTs, startTs, changes: this.changes.map((change) => feedChangeOf(change, keysOnly)) }
  }
}
