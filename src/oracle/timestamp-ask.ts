import { TSO_COUNT_MAX } from '../limits.js'
import type { Timestamp } from '../timestamp.js'
import type { AskKind } from './signed-ask.js'

export interface TimestampAsk {
  /** Number of consecutive timestamps, 0 to `ASK_COUNT_MAX`; 0 when only `floor` matters. */
  readonly count: number
  /** All timestamps handed out after the answer are above it; one in the future counts as the leader's now. 0: none. */
  readonly floor: Timestamp
}

export interface TimestampAnswer {
  /** Last of the timestamps asked for; for a count of 0, the newest handed out or observed. */
  readonly last: Timestamp
  /** The leader's clock in Unix milliseconds, from which a follower knows how far timestamps run ahead. */
  readonly nowMs: number
}

/**
 * Asks the server at `url`. When it rejects, the leader may have handed out timestamps all the same, which nobody uses.
 */
export type OracleForward = (
  url: string,
  ask: TimestampAsk,
  signal: AbortSignal,
) => Promise<TimestampAnswer | 'not_leader'>

export const ASK_COUNT_MAX = TSO_COUNT_MAX

/**
 * A replayed ask only wastes timestamps, at most as many as the leader's bound on running ahead allows, and its answer
 * reaches nobody who could use them.
 */
export const TIMESTAMPS: AskKind<TimestampAsk, TimestampAnswer | 'not_leader'> = {
  name: 'timestamps',
  askBytesMax: 4096,
  answerBytesMax: 4096,
  ask: {
    encode: ({ count, floor }) => ({ count, floor }),
    decode: (fields) => (isTimestampAsk(fields) ? { count: fields.count, floor: fields.floor } : undefined),
  },
  answer: {
    encode: (answer) => (answer === 'not_leader' ? { not_leader: true } : { last: answer.last, now_ms: answer.nowMs }),
    decode(fields) {
      if (fields['not_leader'] === true) return 'not_leader'
      const answer = { last: fields['last'], nowMs: fields['now_ms'] }
      return isTimestampAnswer(answer) ? answer : undefined
    },
  },
}

export function isTimestampAsk(value: unknown): value is TimestampAsk {
  if (typeof value !== 'object' || value === null) return false
  const { count, floor } = value as Partial<Record<keyof TimestampAsk, unknown>>
  return isNatural(count) && count <= ASK_COUNT_MAX && isNatural(floor)
}

export function isTimestampAnswer(value: unknown): value is TimestampAnswer {
  if (typeof value !== 'object' || value === null) return false
  const { last, nowMs } = value as Partial<Record<keyof TimestampAnswer, unknown>>
  return isNatural(last) && isNatural(nowMs)
}

function isNatural(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0
}
