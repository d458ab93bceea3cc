import { asBytes, asInteger, asList, asOneOf, packRecord, unpackRecord } from '../../../percolator/codec/record.js'
import type { Timestamp } from '../../../timestamp.js'
import type { BoundedRange } from '../../calls/end-transactions.js'

/** `full`: the next chunk goes on. `ended`: nothing is appended any more, and every decision has its outcome. */
type ChunkState = 'open' | 'full' | 'ended'
const STATES: readonly ChunkState[] = ['open', 'full', 'ended']

/** The head of a chunk: a row with a part of a server's log. */
export interface ChunkHead {
  readonly state: ChunkState
  /**
   * Every commit that a later entry decides is above it, and so is every commit whose decision stands in the log without an
   * outcome.
   */
  readonly closed: Timestamp
  /** The highest commit_ts in earlier chunks. */
  readonly highestBefore: Timestamp
  /** The earliest chunk that had a decision without an outcome when this one began; its own number if none had. */
  readonly openFrom: number
}

/** A delete_range counts as a transaction that begins when it commits, and whose two keys are the bounds of the range. */
export interface CommittedTxn {
  readonly startTs: Timestamp
  readonly commitTs: Timestamp
  /** The keys of users that the transaction changes. */
  readonly keys: readonly Uint8Array[]
}

export function keyBytes({ keys }: Pick<CommittedTxn, 'keys'>): number {
  return keys.reduce((sum, { length }) => sum + length, 0)
}

/** @returns undefined for a transaction that is no delete_range. */
export function removedBy({ startTs, commitTs, keys: [start, end] }: CommittedTxn): BoundedRange | undefined {
  return startTs === commitTs && start !== undefined && end !== undefined ? { start, end } : undefined
}

/** Written before the lock of the primary becomes a write record, or before the first row of a range is removed. */
export interface Decision extends CommittedTxn {
  /** Unique within the log. */
  readonly number: number
  readonly primary: Uint8Array
}

export interface Outcome {
  /** Of its decision. */
  readonly number: number
  /** False: this decision has committed nothing, and never will. Another one may have. */
  readonly isCommitted: boolean
  /** Set where the decision was committed and stands in an earlier chunk. */
  readonly txn: CommittedTxn | undefined
}

/** One append. */
export interface LogEntry {
  readonly decisions: readonly Decision[]
  readonly outcomes: readonly Outcome[]
}

const HEAD = 'log head'
const ENTRY = 'log entry'

export function encodeHead({ state, closed, highestBefore, openFrom }: ChunkHead): Buffer {
  return packRecord([STATES.indexOf(state), closed, highestBefore, openFrom])
}

export function decodeHead(bytes: Uint8Array): ChunkHead {
  const [state, closed, highestBefore, openFrom] = unpackRecord(bytes, HEAD, 4)
  return {
    state: asOneOf(state, HEAD, STATES),
    closed: asInteger(closed, HEAD),
    highestBefore: asInteger(highestBefore, HEAD),
    openFrom: asInteger(openFrom, HEAD),
  }
}

export function encodeEntry({ decisions, outcomes }: LogEntry): Buffer {
  return packRecord([
    decisions.map(({ number, primary, ...txn }) => [number, primary, ...fieldsOfTxn(txn)]),
    outcomes.map(({ number, isCommitted, txn }) => [number, isCommitted ? 1 : 0, ...(txn ? fieldsOfTxn(txn) : [])]),
  ])
}

export function decodeEntry(bytes: Uint8Array): LogEntry {
  const [decisions, outcomes] = unpackRecord(bytes, ENTRY, 2)
  return {
    decisions: asList(decisions, ENTRY, (item) => {
      const [number, primary, ...txn] = fieldsOf(item)
      return { number: asInteger(number, ENTRY), primary: asBytes(primary, ENTRY), ...txnOf(txn) }
    }),
    outcomes: asList(outcomes, ENTRY, (item) => {
      const [number, isCommitted, ...txn] = fieldsOf(item)
      return {
        ...{ number: asInteger(number, ENTRY), isCommitted: isCommitted === 1 },
        txn: txn.length === 0 ? undefined : txnOf(txn),
      }
    }),
  }
}

function fieldsOfTxn({ startTs, commitTs, keys }: CommittedTxn): readonly unknown[] {
  return [startTs, commitTs, keys]
}

function txnOf([startTs, commitTs, keys]: readonly unknown[]): CommittedTxn {
  return {
    startTs: asInteger(startTs, ENTRY),
    commitTs: asInteger(commitTs, ENTRY),
    keys: asList(keys, ENTRY, asBytes),
  }
}

function fieldsOf(item: unknown): readonly unknown[] {
  return asList(item, ENTRY, (field) => field)
}
