import { expect, test } from 'vitest'
import { isRetryable, type KvError } from '../../../src/errors/kv-error.js'
import { type AckOutcome, acknowledge } from '../../../src/observers/rules/acknowledge.js'
import type { Ack, StoredNotification } from '../../../src/observers/rules/cell.js'
import { KEY, readable } from '../../percolator/builders.js'

const entryAt = (changeTs: number): StoredNotification => ({ changeTs, kind: 'put', depth: 0 })
/** A run that began at `ackTs`, unless told otherwise. */
const ackAt = (ackTs: number, commitTs: number, startTs = ackTs): Ack => ({ ackTs, commitTs, startTs })

interface Case {
  readonly name: string
  readonly fence?: number
  readonly seen?: number
  readonly startTs?: number
  readonly notification?: StoredNotification | undefined
  readonly ack?: Ack
  readonly safePoint?: number
  readonly newestFence?: number
  readonly observedSince?: number
  /** Not given: the history must not be asked. */
  readonly newestSeen?: number
  readonly want: string
}

const decide = (row: Case): AckOutcome => {
  const {
    fence = 20,
    seen = 25,
    startTs = seen,
    notification,
    ack,
    safePoint = 0,
    newestFence = 0,
    observedSince = 1,
  } = row
  return acknowledge(
    { effect: { observer: 'o', key: KEY, fence }, seen, startTs, commitTs: 50 },
    {
      notification: 'notification' in row ? notification : entryAt(10),
      ack,
      safePoint,
      newestFence,
      observedSince,
      newestSeen: () => {
        if (row.newestSeen === undefined) throw new Error('the history was asked')
        return row.newestSeen
      },
    },
  )
}

function summary(outcome: AckOutcome): string {
  if (outcome.kind === 'repeat') return `repeat of ${outcome.commitTs}`
  if (outcome.kind === 'acknowledged') {
    const { ackTs, commitTs, startTs } = outcome.ack
    return `${outcome.isClean ? 'clean' : 'entry stays'}, ack ${ackTs} ${commitTs} ${startTs}`
  }
  const { error } = outcome
  if (error.code !== 'write_conflict') return error.code
  return `${(error as KvError<'write_conflict'>).fields.reason}${isRetryable(error) ? ', retryable' : ''}`
}

/** Of a run that began at 25 under the fence 20 and commits at 50; the notification is of a change at 10. */
const cases: readonly Case[] = [
  { name: 'the first run', want: 'clean, ack 25 50 25' },
  { name: 'the run after another', ack: ackAt(5, 8), want: 'clean, ack 25 50 25' },
  // 1
  { name: 'its own commit, repeated', notification: undefined, ack: ackAt(25, 40), want: 'repeat of 40' },
  {
    name: 'its own commit, repeated when a later change stands',
    notification: entryAt(45),
    ack: ackAt(25, 40),
    want: 'repeat of 40',
  },
  {
    name: 'its own commit, repeated after a collection',
    notification: undefined,
    ack: ackAt(25, 40),
    safePoint: 39,
    want: 'repeat of 40',
  },
  {
    name: 'the commit of a one-shot under a fence that is its start_ts',
    ack: ackAt(25, 40, 39),
    want: 'acknowledged, retryable',
  },
  {
    name: 'a one-shot whose fence was the start_ts of a run',
    fence: 25,
    startTs: 41,
    notification: undefined,
    ack: ackAt(25, 40),
    want: 'acknowledged',
  },
  // 2
  { name: 'claimed below the safe point', safePoint: 21, want: 'ts_below_safe_point' },
  { name: 'claimed at the safe point', safePoint: 20, want: 'clean, ack 25 50 25' },
  { name: 'begun below the safe point, under a later fence', fence: 30, safePoint: 26, want: 'ts_below_safe_point' },
  {
    name: 'below the safe point without an entry',
    notification: undefined,
    safePoint: 21,
    want: 'ts_below_safe_point',
  },
  // 3
  { name: 'no entry', notification: undefined, want: 'acknowledged' },
  { name: 'no entry, and somebody ran since', notification: undefined, ack: ackAt(22, 30), want: 'acknowledged' },
  // 4
  {
    name: 'somebody committed after the claim',
    notification: entryAt(24),
    ack: ackAt(15, 21),
    want: 'acknowledged, retryable',
  },
  { name: 'somebody committed at the claim', ack: ackAt(15, 20), want: 'clean, ack 25 50 25' },
  {
    name: 'somebody committed after the start, before the claim',
    fence: 30,
    ack: ackAt(15, 26),
    want: 'acknowledged, retryable',
  },
  // 5
  { name: 'handed out again', newestFence: 21, want: 'superseded' },
  { name: 'handed out under this fence', newestFence: 20, want: 'clean, ack 25 50 25' },
  { name: 'handed out before', newestFence: 19, want: 'clean, ack 25 50 25' },
  {
    name: 'handed out again, and somebody committed',
    ack: ackAt(22, 30),
    newestFence: 21,
    want: 'acknowledged, retryable',
  },
  // 6
  { name: 'the change is at the start', notification: entryAt(25), want: 'clean, ack 25 50 25' },
  { name: 'changed since, and before', notification: entryAt(26), newestSeen: 10, want: 'entry stays, ack 25 50 25' },
  {
    name: 'changed since, and before that run',
    notification: entryAt(26),
    ack: ackAt(9, 19),
    newestSeen: 10,
    want: 'entry stays, ack 25 50 25',
  },
  { name: 'changed since only', notification: entryAt(26), newestSeen: 0, want: 'acknowledged, retryable' },
  {
    name: 'changed since, and covered before',
    notification: entryAt(26),
    ack: ackAt(10, 19),
    newestSeen: 10,
    want: 'acknowledged, retryable',
  },
  {
    name: 'changed since; the version before is from before the observer',
    notification: entryAt(26),
    observedSince: 10,
    newestSeen: 10,
    want: 'acknowledged, retryable',
  },
  {
    name: 'changed since; the version before is the last run’s own',
    notification: entryAt(26),
    ack: ackAt(9, 19),
    newestSeen: 19,
    want: 'acknowledged, retryable',
  },
  {
    name: 'changed since; the acknowledgement of the version before may be collected',
    notification: entryAt(26),
    safePoint: 10,
    newestSeen: 10,
    want: 'acknowledged, retryable',
  },
  {
    name: 'changed since, and after the safe point',
    notification: entryAt(26),
    safePoint: 10,
    newestSeen: 11,
    want: 'entry stays, ack 25 50 25',
  },
  // A one-shot, begun at 45, has seen what stood at its fence.
  { name: 'a one-shot', seen: 20, startTs: 45, want: 'clean, ack 20 50 45' },
  {
    name: 'a one-shot, and a change after its claim',
    seen: 20,
    startTs: 45,
    notification: entryAt(21),
    newestSeen: 10,
    want: 'entry stays, ack 20 50 45',
  },
  {
    name: 'a one-shot, and nothing but a change after its claim',
    seen: 20,
    startTs: 45,
    notification: entryAt(21),
    newestSeen: 0,
    want: 'acknowledged, retryable',
  },
  {
    name: 'a one-shot, repeated',
    seen: 20,
    startTs: 46,
    notification: entryAt(21),
    ack: ackAt(20, 44, 43),
    want: 'acknowledged, retryable',
  },
]
for (const row of cases) test(`acknowledge at 25: ${row.name}`, () => expect(summary(decide(row))).toBe(row.want))

test('a refusal names the observer, the key and the acknowledgement that came first', () => {
  const outcome = decide({ name: '', notification: entryAt(24), ack: ackAt(15, 21), want: '' })
  if (outcome.kind !== 'refused') throw new Error(`expected a refusal, got ${outcome.kind}`)
  expect(outcome.error.message).toBe(
    'the notification of "k" for the observer o was acknowledged at 21, after the claim',
  )
  expect(readable(outcome.error.fields)).toEqual({
    key: 'k',
    startTs: 25,
    conflictStartTs: 15,
    conflictCommitTs: 21,
    primary: 'k',
    reason: 'acknowledged',
    observer: 'o',
    retryable: true,
  })
})
