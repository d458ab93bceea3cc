import { ENTRY_BYTES, entryCost, pairCost } from '../bytes/answer-size.js'
import { type CounterOp, counted, isInt64 } from '../bytes/counter.js'
import { asBuffer } from '../bytes/key-text.js'
import type { MergedVersion } from '../coordinator/transaction.js'
import type { MergedPair, MergedScan, PutOptions, ScanOrder } from '../coordinator/write-buffer.js'
import { invalid } from '../errors/kv-error.js'
import { printKey } from '../errors/print-key.js'
import { type Awaitable, after } from '../event-loop/after.js'
import { type LazySignal, requireWanted } from '../event-loop/lazy-signal.js'
import { TimeSlicer } from '../event-loop/time-slicer.js'
import { SLICE_ITEMS, STREAM_PAGE_BYTES } from '../limits.js'
import { type Expiry, expireTsOf } from '../percolator/expiry.js'
import { type Stamp, type Stamped, stampedKey } from '../percolator/stamped-key.js'
import { type VersionEnd, withEnd } from '../percolator/version-end.js'
import type { AnswerLease } from '../store/answer-budget.js'
import type { Timestamp } from '../timestamp.js'

export type Op =
  | { readonly op: 'get'; readonly key: Uint8Array }
  | {
      readonly op: 'put'
      readonly key: Uint8Array
      readonly value: Uint8Array
      readonly expiry?: Expiry | undefined
      /** The end of this lease deletes the key. The transaction must check it. */
      readonly lease?: string | undefined
      /** Versionstamped: the key that is written is made of the commit_ts. Excludes `lease`. */
      readonly stamp?: Stamp | undefined
    }
  | { readonly op: 'delete'; readonly key: Uint8Array }
  | {
      readonly op: 'insert'
      readonly key: Uint8Array
      readonly value: Uint8Array
      readonly expiry?: Expiry | undefined
      readonly lease?: string | undefined
    }
  /** Without `expiry`, the key keeps its expiry. */
  | { readonly op: CounterOp; readonly key: Uint8Array; readonly by: number; readonly expiry?: Expiry | undefined }
  /**
   * Writes what `update` makes of the present value. A KvError that it throws refuses the transaction. Without `expiry`, the key
   * keeps its expiry.
   */
  | {
      readonly op: 'update'
      readonly key: Uint8Array
      readonly update: (value: Uint8Array | undefined) => Uint8Array
      readonly expiry?: Expiry | undefined
    }
  /** Writes the value of a present key again, with a new expiry. */
  | { readonly op: 'touch'; readonly key: Uint8Array; readonly expiry: Expiry }
  | {
      readonly op: 'scan'
      readonly start: Uint8Array | undefined
      readonly end: Uint8Array | undefined
      readonly limit: number
      readonly reverse: boolean
      readonly keyOnly: boolean
    }
  | {
      readonly op: 'delete_range'
      readonly start: Uint8Array | undefined
      readonly end: Uint8Array | undefined
      readonly limit: number
    }

export type RangeOp = Extract<Op, { op: 'scan' | 'delete_range' }>

/** True when only its run tells the op's keys. */
export function isRangeOp(op: Op): op is RangeOp {
  return op.op === 'scan' || op.op === 'delete_range'
}

export function isAttaching(op: Op): boolean {
  return (op.op === 'put' || op.op === 'insert') && op.lease !== undefined
}

export function isStamped(op: Op): boolean {
  return op.op === 'put' && op.stamp !== undefined
}

export type OpResult =
  | Record<never, never>
  /** Of a versionstamped put, until the commit: `namedAt` makes `key` of it. */
  | { readonly stamped: Stamped }
  | { readonly key: Uint8Array }
  | ({ readonly found: boolean; readonly value?: Uint8Array; readonly commitTs?: Timestamp | undefined } & VersionEnd)
  | { readonly pairs: readonly MergedPair[] }
  | { readonly value: Uint8Array }
  /** `last` is the last key deleted; present when more may follow. */
  | { readonly deleted: number; readonly more: boolean; readonly last?: Uint8Array }

/**
 * Runs the ops in order; each sees the writes of the ops before it. Returns no promise when none of them has to wait.
 * @param nowTs times to live count from it.
 * @param answer counts the values read; undefined when no op reads.
 * @param signal ends waits for locks, and ends the run between two ops when `requireWanted` says so.
 * @throws KvError `already_exists`, `invalid_argument` (the value of a counter is no number), `payload_too_large`;
 *   the errors of the transaction's reads and locks.
 */
export function runOps(
  txn: OpTarget,
  ops: readonly Op[],
  nowTs: Timestamp,
  answer: AnswerLease | undefined,
  signal?: LazySignal,
): Awaitable<OpResult[]> {
  const running: Running = { txn, nowTs, signal }
  const results: OpResult[] = []
  while (results.length < Math.min(ops.length, SLICE_ITEMS)) {
    const result = runOp(running, ops[results.length] as Op, results.length)
    if (result instanceof Promise) return runRest(running, ops, results, result, answer)
    results.push(result)
    answer?.grow(costOf(result))
  }
  return results.length === ops.length ? results : runRest(running, ops, results, undefined, answer)
}

/** The transaction as ops see it. A call returns no promise when it has nothing to wait for. */
export interface OpTarget {
  get(key: Uint8Array, lockWaitMs?: number, signal?: LazySignal): Awaitable<MergedVersion | undefined>
  getToWrite: OpTarget['get']
  put(key: Uint8Array, value: Uint8Array, end?: PutOptions, waitMs?: number, signal?: LazySignal): Awaitable<void>
  insert: OpTarget['put']
  putStamped(key: Uint8Array, value: Uint8Array, stamp: Stamp, expireTs?: Timestamp): number
  delete(key: Uint8Array, lockWaitMs?: number, signal?: LazySignal): Awaitable<void>
  scan(order: ScanOrder, lockWaitMs?: number, signal?: LazySignal): Awaitable<MergedScan>
}

interface Running {
  readonly txn: OpTarget
  readonly nowTs: Timestamp
  readonly signal: LazySignal | undefined
}

/**
 * Runs the ops from the first one that waits, or after `SLICE_ITEMS` of them.
 * @param begun the next op, if it has begun.
 */
async function runRest(
  running: Running,
  ops: readonly Op[],
  results: OpResult[],
  begun: Promise<OpResult> | undefined,
  answer: AnswerLease | undefined,
): Promise<OpResult[]> {
  const slicer = new TimeSlicer()
  for (let step: Awaitable<OpResult> | undefined = begun; ; step = undefined) {
    if (step === undefined) {
      requireWanted(running.signal) // Not before an op that has begun, whose failure would go unhandled.
      step = runOp(running, ops[results.length] as Op, results.length)
    }
    const result: OpResult = step instanceof Promise ? await step : step
    results.push(result)
    answer?.grow(costOf(result))
    if (results.length === ops.length) return results
    const pause = slicer.next()
    if (pause !== undefined) await pause
  }
}

export function isRead({ op }: Op): boolean {
  return op !== 'put' && op !== 'delete'
}

/** A touched key or a counter stays attached to its lease, which `keeps` does. */
function endOf({ expiry, lease }: Extract<Op, { op: 'put' | 'insert' }>, nowTs: Timestamp): PutOptions | undefined {
  if (expiry === undefined && lease === undefined) return undefined
  return { expireTs: expireTsOf(expiry, nowTs), lease }
}

function runOp({ txn, nowTs, signal }: Running, op: Op, index: number): Awaitable<OpResult> {
  switch (op.op) {
    case 'get':
      return after(txn.get(op.key, undefined, signal), gotten)
    case 'scan':
      return after(txn.scan(op, undefined, signal), ({ pairs }) => ({ pairs }))
    case 'put':
      if (op.stamp !== undefined) {
        const counter = txn.putStamped(op.key, op.value, op.stamp, expireTsOf(op.expiry, nowTs))
        return { stamped: { key: op.key, counter } }
      }
      return after(txn.put(op.key, op.value, endOf(op, nowTs), undefined, signal), done)
    case 'delete':
      return after(txn.delete(op.key, undefined, signal), done)
    case 'insert':
      return after(txn.insert(op.key, op.value, endOf(op, nowTs), undefined, signal), done)
    case 'increment':
    case 'min':
    case 'max':
    case 'update':
      return after(txn.getToWrite(op.key, undefined, signal), (current) => {
        const value = op.op === 'update' ? op.update(current?.value) : Buffer.from(newCount(op, index, current))
        const expireTs = op.expiry === undefined ? (current?.expireTs ?? 0) : expireTsOf(op.expiry, nowTs)
        return after(txn.put(op.key, value, { expireTs, keeps: current }), () => ({ value }))
      })
    case 'touch':
      return after(txn.getToWrite(op.key, undefined, signal), (current) => {
        if (current === undefined) return { found: false }
        const end = { expireTs: expireTsOf(op.expiry, nowTs), keeps: current }
        return after(txn.put(op.key, current.value, end), () => ({ found: true }))
      })
    case 'delete_range':
      return deleteRange(txn, op, signal)
  }
}

/** @returns the results with the keys of versionstamped puts, or without them as long as there is no commit_ts. */
export function namedAt(results: readonly OpResult[], commitTs: Timestamp | undefined): readonly OpResult[] {
  if (!results.some((result) => 'stamped' in result)) return results
  return results.map((result) => {
    if (!('stamped' in result)) return result
    return commitTs === undefined ? DONE : { key: stampedKey(result.stamped, commitTs) }
  })
}

function gotten(found: MergedVersion | undefined): OpResult {
  if (found === undefined) return { found: false }
  const { value, commitTs } = found
  return withEnd({ found: true, value, commitTs }, found)
}

const DONE: OpResult = {}

function done(): OpResult {
  return DONE
}

/** A byte limit on the page of keys may end the op early. */
async function deleteRange(
  txn: OpTarget,
  { start, end, limit }: Extract<Op, { op: 'delete_range' }>,
  signal: LazySignal | undefined,
): Promise<OpResult> {
  const order = { start, end, limit: limit + 1, reverse: false, keyOnly: true, bytesMax: STREAM_PAGE_BYTES }
  const { pairs, cutAfter } = await txn.scan(order, undefined, signal)
  const found = pairs.slice(0, limit)
  for (const { key } of found) await txn.delete(key, undefined, signal)
  const last = found.at(-1)?.key
  const more = last !== undefined && (pairs.length > limit || cutAfter !== undefined)
  return { deleted: found.length, more, ...(more ? { last } : {}) }
}

function costOf(result: OpResult): number {
  if ('pairs' in result) return result.pairs.reduce((sum, pair) => sum + pairCost(pair), ENTRY_BYTES)
  return 'value' in result && result.value !== undefined ? entryCost(result.value) : ENTRY_BYTES
}

function newCount(
  { op, key, by }: Extract<Op, { op: CounterOp }>,
  index: number,
  current: MergedVersion | undefined,
): string {
  const value = counted(op, current && asBuffer(current.value).toString('latin1'), by)
  if (value === undefined)
    throw invalid(`ops[${index}].key`, `the value of key ${printKey(key)} is no decimal integer of 64 bits`)
  if (!isInt64(value)) throw invalid(`ops[${index}].by`, `incrementing key ${printKey(key)} by ${by} overflows 64 bits`)
  return value.toString()
}
