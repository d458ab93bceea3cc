import { asBytes, asInteger, asList, asOneOf, packRecord, unpackRecord } from '../../../percolator/codec/record.js'
import type { Timestamp } from '../../../timestamp.js'

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

export interface CommittedTxn {
  readonly startTs: Timestamp
  readonly commitTs: Timestamp
  /** The keys of users that the transaction changes. */
  readonly keys: readonly Uint8Array[]
}

/** Written before the lock of the primary becomes a write record. */
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

/** A delete_range. It needs no outcome: who repeats it makes another. */
export interface Removal {
  readonly ts: Timestamp
  readonly start: Uint8Array
  readonly end: Uint8Array
}

/** One append. */
export interface LogEntry {
  readonly decisions: readonly Decision[]
  readonly outcomes: readonly Outcome[]
  readonly removals: readonly Removal[]
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

export function encodeEntry({ decisions, outcomes, removals }: LogEntry): Buffer {
  return packRecord([
    decisions.map(({ number, primary, ...txn }) => [number, primary, ...fieldsOfTxn(txn)]),
    outcomes.map(({ number, isCommitted, txn }) => [number, isCommitted ? 1 : 0, ...(txn ? fieldsOfTxn(txn) : [])]),
    removals.map(({ ts, start, end }) => [ts, start, end]),
  ])
}

export function decodeEntry(bytes: Uint8Array): LogEntry {
  const [decisions, outcomes, removals] = unpackRecord(bytes, ENTRY, 3)
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
    removals: asList(removals, ENTRY, (item) => {
      const [ts, start, end] = fieldsOf(item)
      return { ts: asInteger(ts, ENTRY), start: asBytes(start, ENTRY), end: asBytes(end, ENTRY) }
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
