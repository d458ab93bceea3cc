import { type Entry, entriesBytes, snapshotReadPieces } from '../../kv-connect/answers.js'
import type { KvDatabase } from '../../kv-connect/kv-database.js'
import { ANSWER_STEP_BYTES } from './encode-answer.js'
import { LongAnswer } from './long-answer.js'

/** The answer to a snapshot read: encoded at once, or in steps while the client receives it. */
export function encodeEntries(ranges: readonly (readonly Entry[])[], kv: KvDatabase): Buffer | LongAnswer {
  const bytes = entriesBytes(ranges)
  if (bytes >= ANSWER_STEP_BYTES) return new LongAnswer(snapshotReadPieces(ranges, kv, ANSWER_STEP_BYTES), bytes)
  const [whole] = snapshotReadPieces(ranges, kv, Number.POSITIVE_INFINITY)
  return whole as Buffer
}
