import { expect, test } from 'vitest'
import type { OracleRecord } from '../../../../src/oracle/oracle-row.js'
import { tableState } from '../../../../src/store/table/records/table-state.js'

const OURS = Buffer.from('ours')
const THEIRS = Buffer.from('theirs')

function record(epoch: number, beat: number): OracleRecord {
  return { epoch, url: 'http://one', id: 'one', mark: 1000, beat }
}

test.each([
  ['nothing has changed', record(3, 5), OURS, record(3, 5), 'same'],
  ['the leader goes on', record(3, 5), OURS, record(3, 6), 'same'],
  ['the lead has moved', record(3, 5), OURS, record(4, 1), 'same'],
  ['nobody has led yet', undefined, OURS, undefined, 'same'],
  ['somebody leads for the first time', undefined, OURS, record(1, 1), 'same'],
  ['the secret is gone', record(3, 5), undefined, record(3, 6), 'faulty'],
  ["the oracle's row is gone", record(3, 5), OURS, undefined, 'faulty'],
  ['both rows are gone', record(3, 5), undefined, undefined, 'another'],
  ['both rows are gone, and nobody had led', undefined, undefined, undefined, 'another'],
  ['another secret', record(3, 5), THEIRS, record(3, 6), 'another'],
  ['another secret, and nobody leads', record(3, 5), THEIRS, undefined, 'another'],
  ['the epoch has gone back', record(3, 5), OURS, record(2, 9), 'set back'],
  ['the beat has gone back', record(3, 5), OURS, record(3, 4), 'set back'],
  ['set back, without a secret', record(3, 5), undefined, record(1, 1), 'set back'],
] as const)('%s', (_, seen, secret, oracle, is) => {
  const state = tableState(OURS, seen, { secret, oracle })
  expect(state.is).toBe(is)
  if (state.is !== 'same') expect(state.why).toMatch(/table/)
})
