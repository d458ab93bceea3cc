import { type LogContents, readLog } from './log-file.js'
import { sequencesOf } from './write-batch.js'

export interface NextSequence {
  readonly min: bigint
  readonly max: bigint
}

export interface BatchLog extends LogContents {
  /**
   * One line for people: why `soundEnd` is not the end; undefined for the end of the file and for a torn end, as a crash leaves
   * it.
   */
  readonly fault: string | undefined
  readonly next: NextSequence
}

/** More operations than the logs can hold. */
const OPS_LOST_MAX = 1n << 24n

/** Bounds for the first log of a MANIFEST. @param lastSequence of the MANIFEST; it may have grown while that was written. */
export function firstSequence(lastSequence: number): NextSequence {
  return { min: 0n, max: BigInt(lastSequence) + 1n }
}

/**
 * Reads the batches of a `.log`. Batches are numbered by their operations, over all logs, so a gap shows a missing batch; the
 * batches behind it are `after`. Bytes behind a torn end that look like a record, but with an impossible number, are no record: a
 * value may look like a log, and be the rest of a write that a crash cut off.
 */
export function readBatches(bytes: Buffer, first: NextSequence): BatchLog {
  const { records, soundEnd, after: behind } = readLog(bytes)
  let next = first
  for (const [i, { offset, payload }] of records.entries()) {
    const batch = sequencesOf(payload)
    if (batch === undefined || batch.first < next.min || batch.first > next.max) {
      const fault = `the record at offset ${offset} does not follow the one before it`
      return { records: records.slice(0, i), soundEnd: offset, after: [...records.slice(i), ...behind], fault, next }
    }
    next = { min: batch.end, max: batch.end }
  }
  const after = behind.filter(({ payload }) => {
    const batch = sequencesOf(payload)
    return batch !== undefined && batch.first >= next.min && batch.first <= next.max + OPS_LOST_MAX
  })
  const isDamaged = after.length > 0
  const fault = isDamaged
    ? `the record at offset ${soundEnd} is damaged, with ${after.length} sound ones behind it`
    : undefined
  return { records, soundEnd, after, fault, next }
}
