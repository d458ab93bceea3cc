import type { Lock } from '../../src/percolator/lock.js'
import type { Mutation, Outcome, RowView } from '../../src/percolator/row.js'
import { rollbackRecord, type WriteRecord, type WriteType } from '../../src/percolator/write.js'
import { LOGICAL_PER_MS, type Timestamp } from '../../src/timestamp.js'

export const bytes = (text: string): Uint8Array => Buffer.from(text, 'latin1')
export const KEY = bytes('k')
export const PRIMARY = bytes('p')
/** The first timestamp of a millisecond; small timestamps such as 10 all lie in millisecond 0. */
export const ms = (unixMs: number): Timestamp => unixMs * LOGICAL_PER_MS

export function lockAt(startTs: Timestamp, more: Partial<Lock> = {}): Lock {
  return {
    type: 'put',
    primary: PRIMARY,
    startTs,
    ttlMs: 100,
    shortValue: undefined,
    expireTs: 0,
    leaseFence: 0,
    forUpdateTs: 0,
    txnSize: 0,
    minCommitTs: 0,
    useAsyncCommit: false,
    secondaries: [],
    rollbackTs: [],
    ...more,
  }
}

export const pessimisticAt = (startTs: Timestamp, more: Partial<Lock> = {}): Lock =>
  lockAt(startTs, { type: 'pessimistic', forUpdateTs: startTs, ...more })

export const asyncAt = (startTs: Timestamp, more: Partial<Lock> = {}): Lock =>
  lockAt(startTs, { useAsyncCommit: true, minCommitTs: startTs + 1, shortValue: bytes('v'), ...more })

function recordAt(type: WriteType, startTs: Timestamp, commitTs: Timestamp, more: Partial<WriteRecord>): WriteRecord {
  return {
    type,
    startTs,
    commitTs,
    shortValue: undefined,
    expireTs: 0,
    leaseFence: 0,
    isProtected: false,
    hasOverlappedRollback: false,
    ...more,
  }
}

/** A put with a short value; `{ shortValue: undefined }` makes it a long one. */
export const putAt = (startTs: Timestamp, commitTs: Timestamp, more: Partial<WriteRecord> = {}): WriteRecord =>
  recordAt('put', startTs, commitTs, { shortValue: bytes('v'), ...more })
export const deleteAt = (startTs: Timestamp, commitTs: Timestamp, more: Partial<WriteRecord> = {}): WriteRecord =>
  recordAt('delete', startTs, commitTs, more)
export const lockRecordAt = (startTs: Timestamp, commitTs: Timestamp, more: Partial<WriteRecord> = {}): WriteRecord =>
  recordAt('lock', startTs, commitTs, more)
export const rollbackAt = (startTs: Timestamp): WriteRecord => rollbackRecord(startTs, false)
export const protectedRollbackAt = (startTs: Timestamp): WriteRecord => rollbackRecord(startTs, true)
/** The same record, with another transaction's rollback remembered on it. */
export const overlapped = (write: WriteRecord): WriteRecord => ({ ...write, hasOverlappedRollback: true })

export interface RowParts {
  readonly key?: Uint8Array
  readonly lock?: Lock
  /** Newest first. */
  readonly writes?: readonly WriteRecord[]
}

export function rowOf({ key = KEY, lock, writes = [] }: RowParts = {}): RowView {
  return { key, lock, writes }
}

/** The row as it stands after a store wrote these mutations; those of other keys are passed over. */
export function applyTo(row: RowView, mutations: readonly Mutation[]): RowView {
  let lock = row.lock
  const writes = new Map(row.writes.map((write) => [write.commitTs, write]))
  for (const mutation of mutations) {
    if (Buffer.compare(mutation.key, row.key) !== 0) continue
    if (mutation.type === 'put-lock') lock = mutation.lock
    else if (mutation.type === 'delete-lock') lock = undefined
    else if (mutation.type === 'put-write') writes.set(mutation.write.commitTs, mutation.write)
    else if (mutation.type === 'delete-write') writes.delete(mutation.commitTs)
  }
  return { key: row.key, lock, writes: [...writes.values()].sort((a, b) => b.commitTs - a.commitTs) }
}

/** Bytes as latin1 text, at any depth: what a failed expectation prints can be read. */
export function readable(value: unknown): unknown {
  if (value instanceof Uint8Array) return Buffer.from(value).toString('latin1')
  if (Array.isArray(value)) return value.map(readable)
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(Object.entries(value).map(([name, field]) => [name, readable(field)]))
}

function describe(mutation: Mutation): string {
  switch (mutation.type) {
    case 'put-lock':
      return `+lock ${mutation.lock.type} ${mutation.lock.startTs}`
    case 'delete-lock':
      return '-lock'
    case 'put-write':
      return `+${describeWrite(mutation.write)}`
    case 'delete-write':
      return `-write ${mutation.commitTs}`
    case 'put-value':
      return `+value ${mutation.startTs}`
    case 'delete-value':
      return `-value ${mutation.startTs}`
  }
}

export function describeWrite(write: WriteRecord): string {
  const span = write.type === 'rollback' ? `${write.startTs}` : `${write.startTs}..${write.commitTs}`
  const flags = `${write.isProtected ? ' protected' : ''}${write.hasOverlappedRollback ? ' overlapped' : ''}`
  return `${write.type} ${span}${flags}`
}

/**
 * Mutations in a line, sorted, since their order in a batch means nothing: `+lock put 10`, `-lock`, `+put 5..10
 * overlapped`, `+rollback 10 protected`, `-write 5`, `+value 10`, `-value 10`; before each its key, where not `k`.
 */
export function changes(mutations: readonly Mutation[]): string {
  if (mutations.length === 0) return 'no mutations'
  const lines = mutations.map((mutation) => {
    const key = String(readable(mutation.key))
    return key === 'k' ? describe(mutation) : `${key}: ${describe(mutation)}`
  })
  return lines.sort().join(', ')
}

/** `changes` of a success; the code of an error, and the reason of a write conflict. */
export function summary(outcome: Outcome<unknown>): string {
  if (outcome.ok) return changes(outcome.mutations)
  const { code, fields } = outcome.error
  return 'reason' in fields ? `${code} ${fields.reason}` : code
}

/** The answer and the mutations of an outcome that must be a success. */
export function mustSucceed<T>(outcome: Outcome<T>): { value: T; mutations: readonly Mutation[] } {
  if (!outcome.ok) throw new Error(`expected a success, got ${outcome.error.message}`, { cause: outcome.error })
  return outcome
}

/** Code and fields of an outcome that must be an error. */
export function failure(outcome: Outcome<unknown>): unknown {
  if (outcome.ok) throw new Error(`expected an error, got ${changes(outcome.mutations)}`)
  return readable({ code: outcome.error.code, ...outcome.error.fields })
}

/** A lock as an answer shows it; see `lockAt` for the defaults. */
export const lockInfoOf = (key: string, startTs: Timestamp, more: Record<string, unknown> = {}): unknown => ({
  key,
  primary: 'p',
  startTs,
  ttl: 100,
  type: 'put',
  txnSize: 0,
  forUpdateTs: 0,
  minCommitTs: 0,
  useAsyncCommit: false,
  secondaries: [],
  ...more,
})
