import { TSO_COUNT_MAX } from '../limits.js'
import type { Timestamp } from '../timestamp.js'
import type { AskKind } from './signed-ask.js'

/** What one server asks of the one that leads. */
export interface TimestampAsk {
  /** How many consecutive timestamps, 0 to `ASK_COUNT_MAX`; 0 where only `floor` matters. */
  readonly count: number
  /** Timestamps handed out from now on are above this, but that the future counts as the leader's now; 0: none. */
  readonly floor: Timestamp
}

export interface TimestampAnswer {
  /** The last of the timestamps asked for; for a count of 0 the newest one that was handed out or observed. */
  readonly last: Timestamp
  /** The leader's clock in Unix milliseconds, by which its timestamps run ahead or do not. */
  readonly nowMs: number
}

/** Asks the server at `url`. Rejects when there is no answer; the leader may have handed out timestamps all the same, which nobody uses. */
export type OracleForward = (
  url: string,
  ask: TimestampAsk,
  signal: AbortSignal,
) => Promise<TimestampAnswer | 'not_leader'>

export const ASK_COUNT_MAX = TSO_COUNT_MAX

/**
 * An ask that is sent again costs timestamps, as many as the leader's bound on how far they run ahead allows, and is told to nobody
 * who could use them.
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
