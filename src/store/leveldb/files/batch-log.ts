import { type LogContents, readLog } from './log-file.js'
import { sequencesOf } from './write-batch.js'

/** What the next batch's sequence number is, at least and at most. */
export interface NextSequence {
  readonly min: bigint
  readonly max: bigint
}

export interface BatchLog extends LogContents {
  /** Why `soundEnd` is where it is, for people; undefined where that is the end, or torn as a crash leaves it. */
  readonly fault: string | undefined
  /** Of the first batch in the log after this one. */
  readonly next: NextSequence
}

/** More than fit into the logs. */
const OPS_LOST_MAX = 1n << 24n

/** Of a log that a MANIFEST begins with. @param lastSequence what that says, which may have gone on while it was written. */
export function firstSequence(lastSequence: number): NextSequence {
  return { min: 0n, max: BigInt(lastSequence) + 1n }
}

/**
 * A `.log`. Batches are numbered by their operations, over all logs, so one that does not follow shows that there was another
 * before it: from there on they are `after`. And what looks like a record behind a torn end is none where its number makes no
 * sense: a value may look like a log, and be all that is left of a write that a crash cut off.
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
