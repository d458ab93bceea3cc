import { describe, expect, test } from 'vitest'
import { decodeKeyTs } from '../../../../src/percolator/codec/key.js'
import { decodeWrite, encodeWrite } from '../../../../src/percolator/codec/write.js'
import type { Lock } from '../../../../src/percolator/lock.js'
import { isData, rollbackRecord, type WriteRecord } from '../../../../src/percolator/write.js'
import {
  checkKey,
  type DamagedRecord,
  type KeyRecords,
  type Suspects,
} from '../../../../src/store/leveldb/integrity/check-key.js'
import { AHEAD, lockKey, newestKey, valueKey, writeKey } from '../../../../src/store/leveldb/records/keyspace.js'
import { encodeNewest } from '../../../../src/store/leveldb/records/newest-record.js'
import { utf8 } from '../../support.js'

const KEY = utf8('k')
const MARK = 1000

const written = (type: 'put' | 'delete' | 'lock', startTs: number, commitTs: number, value?: string): WriteRecord => ({
  type,
  startTs,
  commitTs,
  shortValue: value === undefined ? undefined : utf8(value),
  expireTs: 0,
  leaseFence: 0,
  isProtected: false,
  hasOverlappedRollback: false,
})
const lockAt = (startTs: number, rest: Partial<Lock> = {}): Lock => ({
  type: 'put',
  primary: KEY,
  startTs,
  ttlMs: 3000,
  shortValue: utf8('v'),
  expireTs: 0,
  leaseFence: 0,
  forUpdateTs: 0,
  txnSize: 1,
  minCommitTs: 0,
  useAsyncCommit: false,
  secondaries: [],
  rollbackTs: [],
  ...rest,
})
const newestOf = (write: WriteRecord): Buffer => encodeNewest(write.commitTs, encodeWrite(write))

/** With the newest record that the writes ask for. */
function recordsOf(rest: Partial<KeyRecords>): KeyRecords {
  const newest = rest.writes?.find(isData)
  const empty = { key: KEY, lock: undefined, writes: [], valuesAt: [], newest: newest && newestOf(newest), aheadAt: [] }
  return { ...empty, ...rest }
}

/** What the records are once the remedies are applied. */
function mended(records: KeyRecords, suspects?: Suspects): KeyRecords {
  let { lock, writes, valuesAt, newest, aheadAt, damaged = [] } = records
  for (const { ops } of checkKey(records, MARK, suspects))
    for (const op of ops) {
      const isDelete = op.type === 'del'
      damaged = damaged.filter(({ stored }) => !op.key.equals(stored))
      if (op.key.equals(lockKey(KEY))) lock = undefined
      else if (op.key.equals(newestKey(KEY))) newest = isDelete ? undefined : op.value
      else if (isDelete) {
        writes = writes.filter(({ commitTs }) => !op.key.equals(writeKey(KEY, commitTs)))
        valuesAt = valuesAt.filter((ts) => !op.key.equals(valueKey(KEY, ts)))
      } else if (op.key[0] === AHEAD) aheadAt = [...aheadAt, 2000]
      else writes = [decodeWrite(op.value, decodeKeyTs(op.key)), ...writes]
    }
  return { key: KEY, lock, writes, valuesAt, newest, aheadAt, damaged }
}

const damagedAt = (stored: Buffer): DamagedRecord => ({ stored, why: 'fails its checksum' })

const SHORT = written('put', 10, 11, 'v')
const LONG = written('put', 20, 21)

describe('sound', () => {
  const CASES: Record<string, Partial<KeyRecords>> = {
    nothing: {},
    'a short value': { writes: [SHORT] },
    'a long value': { writes: [LONG, SHORT], valuesAt: [20] },
    'a deletion': { writes: [written('delete', 30, 31), LONG], valuesAt: [20] },
    'Lock and Rollback records above the newest version': {
      writes: [rollbackRecord(50, true), written('lock', 40, 41), SHORT],
    },
    'only a Rollback record': { writes: [rollbackRecord(50, false)] },
    'a lock with its long value': { lock: lockAt(30, { shortValue: undefined }), writes: [SHORT], valuesAt: [30] },
    'a lock above a rollback of another transaction': { lock: lockAt(30), writes: [rollbackRecord(29, false)] },
    'a lock of the kind that only locks': { lock: lockAt(30, { type: 'lock', shortValue: undefined }) },
    'a record above the mark that is on the list': { writes: [written('put', 900, 2000, 'v')], aheadAt: [2000] },
    'an entry of the list whose record was collected': { aheadAt: [2000] },
  }
  test.each(Object.keys(CASES))('%s', (name) => {
    expect(checkKey(recordsOf(CASES[name] ?? {}), MARK)).toEqual([])
  })
})

describe('not sound', () => {
  const CASES: Record<string, [Partial<KeyRecords>, findings: string[], losses: number]> = {
    'a put without its value': [{ writes: [LONG, SHORT] }, ['missing_value 21', 'wrong_newest 11'], 1],
    'the only put without its value': [{ writes: [LONG] }, ['missing_value 21', 'wrong_newest 0'], 1],
    'a value of nobody': [{ writes: [SHORT], valuesAt: [10, 5] }, ['orphan_value 10', 'orphan_value 5'], 0],
    'a lock without its value': [{ lock: lockAt(30, { shortValue: undefined }) }, ['missing_value 30'], 1],
    'a lock beside its commit': [{ lock: lockAt(10), writes: [SHORT] }, ['bad_lock 10'], 0],
    'a lock beside its commit, with a long value': [
      { lock: lockAt(20, { shortValue: undefined }), writes: [LONG], valuesAt: [20] },
      ['bad_lock 20'],
      0,
    ],
    'a lock beside its rollback, with a long value': [
      { lock: lockAt(30, { shortValue: undefined }), writes: [rollbackRecord(30, true)], valuesAt: [30] },
      ['bad_lock 30', 'orphan_value 30'],
      0,
    ],
    'a pessimistic lock': [{ lock: lockAt(30, { type: 'pessimistic' }) }, ['bad_lock 30'], 0],
    'a commit before the start': [
      { writes: [written('put', 12, 11, 'v')] },
      ['bad_timestamps 11', 'wrong_newest 0'],
      1,
    ],
    'a rollback away from its start': [
      { writes: [{ ...rollbackRecord(30, true), commitTs: 31 }] },
      ['bad_timestamps 31'],
      0,
    ],
    'a commit and a rollback of one transaction': [
      { writes: [SHORT, rollbackRecord(10, true)] },
      ['contradiction 10'],
      0,
    ],
    'no newest record': [{ writes: [SHORT], newest: undefined }, ['wrong_newest 11'], 0],
    'an older newest record': [
      { writes: [written('delete', 30, 31), SHORT], newest: newestOf(SHORT) },
      ['wrong_newest 31'],
      0,
    ],
    'a newest record alone': [{ newest: newestOf(SHORT) }, ['missing_write 11'], 0],
    'a newest record above the newest write record': [
      { writes: [SHORT], newest: newestOf(written('delete', 30, 31)) },
      ['missing_write 31'],
      0,
    ],
    'a newest record alone, without its value': [{ newest: newestOf(LONG) }, ['missing_value 21', 'wrong_newest 0'], 1],
    'a damaged write record with its copy': [
      { newest: newestOf(SHORT), damaged: [damagedAt(writeKey(KEY, 11))] },
      ['missing_write 11'],
      0,
    ],
    'a damaged older write record': [
      { writes: [LONG], valuesAt: [20], damaged: [damagedAt(writeKey(KEY, 11))] },
      ['damaged_record 0'],
      1,
    ],
    'a damaged newest record': [
      { writes: [SHORT], newest: undefined, damaged: [damagedAt(newestKey(KEY))] },
      ['damaged_record 11'],
      0,
    ],
    'both damaged': [
      { damaged: [damagedAt(writeKey(KEY, 11)), damagedAt(newestKey(KEY))] },
      ['damaged_record 0', 'damaged_record 0'],
      1,
    ],
    'a damaged lock': [{ damaged: [damagedAt(lockKey(KEY))] }, ['damaged_record 0'], 1],
    'a damaged value': [
      { writes: [LONG, SHORT], damaged: [damagedAt(valueKey(KEY, 20))] },
      ['missing_value 21', 'damaged_record 0', 'wrong_newest 11'],
      1,
    ],
    'a newest record that is no record': [{ writes: [SHORT], newest: utf8('?') }, ['wrong_newest 11'], 0],
    'a record above the mark': [{ writes: [written('put', 900, 2000, 'v')] }, ['above_mark 2000'], 0],
  }
  test.each(Object.keys(CASES))('%s', (name) => {
    const [records, expected, losses] = CASES[name] as (typeof CASES)[string]
    const findings = checkKey(recordsOf(records), MARK)
    expect(findings.map(({ kind, ts }) => `${kind} ${ts}`)).toEqual(expected)
    expect(findings.filter(({ isLoss }) => isLoss)).toHaveLength(losses)
    for (const { message, key } of findings) expect([message, key]).toEqual([expect.stringContaining('"k"'), KEY])
    expect(checkKey(mended(recordsOf(records)), MARK)).toEqual([])
  })
})

describe('where files lost records', () => {
  const OLDER = written('put', 5, 6, 'older')
  const CASES: Record<string, [Partial<KeyRecords>, Partial<Suspects>, expected: string[]]> = {
    'of CF_WRITE, the copy is right': [
      { writes: [OLDER], newest: newestOf(SHORT) },
      { writes: true },
      ['missing_write 11'],
    ],
    'of CF_WRITE, and the copy is older: deleted records are back': [
      { writes: [SHORT, OLDER], newest: newestOf(OLDER) },
      { writes: true },
      ['stale_write 11'],
    ],
    'of CF_WRITE, and there is no copy: all of them are': [
      { writes: [SHORT, OLDER], newest: undefined },
      { writes: true },
      ['stale_write 11', 'stale_write 6'],
    ],
    'of CF_WRITE, and the copy has lost its value': [
      { writes: [OLDER], newest: newestOf(LONG) },
      { writes: true },
      ['missing_value 21', 'wrong_newest 6'],
    ],
    'of CF_WRITE, and the copy cannot be read: what is left stays': [
      { writes: [OLDER], newest: utf8('?') },
      { writes: true },
      ['wrong_newest 6'],
    ],
    'of CF_NEWEST, a newer copy is one that is back': [
      { writes: [OLDER], newest: newestOf(SHORT) },
      { newest: true },
      ['wrong_newest 6'],
    ],
    'of CF_NEWEST, and the key is gone': [{ newest: newestOf(SHORT) }, { newest: true }, ['wrong_newest 0']],
    'of both, the newer one is kept': [
      { writes: [OLDER], newest: newestOf(SHORT) },
      { newest: true, writes: true },
      ['missing_write 11'],
    ],
    'of CF_WRITE, with a value that nothing names': [{ valuesAt: [20] }, { writes: true }, ['orphan_value 20']],
  }
  test.each(Object.keys(CASES))('%s', (name) => {
    const [records, suspects, expected] = CASES[name] as (typeof CASES)[string]
    const all = { lock: false, newest: false, writes: false, ...suspects }
    const findings = checkKey(recordsOf(records), MARK, all)
    expect(findings.map(({ kind, ts }) => `${kind} ${ts}`)).toEqual(expected)
    const losses = findings.filter(({ isLoss }) => isLoss).map(({ kind }) => kind)
    expect(losses).toEqual(expected.flatMap((one) => /^(missing_value|orphan_value)/.exec(one)?.[1] ?? []))
    expect(checkKey(mended(recordsOf(records), all), MARK)).toEqual([])
  })
})
