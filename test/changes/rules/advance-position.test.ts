import { expect, test } from 'vitest'
import { advancePosition } from '../../../src/changes/rules/advance-position.js'
import type { Consumer } from '../../../src/changes/rules/consumer.js'
import { isRetryable } from '../../../src/errors/kv-error.js'
import { KEY } from '../../percolator/builders.js'

const CONSUMER: Consumer = {
  id: 1,
  name: 'copy',
  range: {},
  holdMs: 1000,
  position: 20,
  ackedTs: 20,
  startTs: 18,
  commitTs: 19,
}

interface Case {
  readonly name: string
  readonly consumer?: Partial<Consumer>
  readonly from: number
  readonly ts: number
  readonly startTs?: number
  readonly want: string
}

function summary({ consumer, from, ts, startTs = 40 }: Case): string {
  const request = { effect: { consumer: 'copy', from, ts }, startTs, commitTs: 50, primary: KEY }
  const outcome = advancePosition(request, { ...CONSUMER, ...consumer })
  if (outcome.kind === 'repeat') return `repeat of ${outcome.commitTs}`
  if (outcome.kind === 'advanced') {
    const { position, ackedTs, startTs, commitTs } = outcome.consumer
    return `at ${position}, acked ${ackedTs} by ${startTs} ${commitTs}`
  }
  const { fields } = outcome.error
  const retryable = isRetryable(outcome.error) ? ', retryable' : ''
  return `${fields.reason}: ${fields.consumer} is at ${fields.position}${retryable}`
}

const cases: readonly Case[] = [
  { name: 'the next step', from: 20, ts: 30, want: 'at 30, acked 30 by 40 50' },
  { name: 'a step that leads nowhere', from: 20, ts: 20, want: 'at 20, acked 20 by 40 50' },
  { name: 'a step from below: another instance was first', from: 19, ts: 30, want: 'acknowledged: copy is at 20' },
  { name: 'a step over changes that nobody has acknowledged', from: 21, ts: 30, want: 'acknowledged: copy is at 20' },
  { name: 'its own commit, repeated', from: 10, ts: 20, startTs: 18, want: 'repeat of 19' },
  // The server has moved the position over a gap.
  {
    name: 'from the last acknowledgement',
    consumer: { position: 25 },
    from: 20,
    ts: 30,
    want: 'at 30, acked 30 by 40 50',
  },
  { name: 'from the position', consumer: { position: 25 }, from: 25, ts: 30, want: 'at 30, acked 30 by 40 50' },
  {
    name: 'from where the position was for a while',
    consumer: { position: 25 },
    from: 22,
    ts: 30,
    want: 'at 30, acked 30 by 40 50',
  },
  { name: 'a step within the gap', consumer: { position: 25 }, from: 20, ts: 23, want: 'at 25, acked 23 by 40 50' },
  { name: 'from below the gap', consumer: { position: 25 }, from: 19, ts: 30, want: 'acknowledged: copy is at 25' },
  { name: 'from above the gap', consumer: { position: 25 }, from: 26, ts: 30, want: 'acknowledged: copy is at 25' },
  // A reset.
  {
    name: 'a step of before a reset below',
    consumer: { position: 5, ackedTs: 5 },
    from: 20,
    ts: 30,
    want: 'acknowledged: copy is at 5',
  },
  {
    name: 'the first step from the beginning',
    consumer: { position: 0, ackedTs: 0 },
    from: 0,
    ts: 30,
    want: 'at 30, acked 30 by 40 50',
  },
]
for (const row of cases)
  test(`a position that a transaction moves: ${row.name}`, () => expect(summary(row)).toBe(row.want))
