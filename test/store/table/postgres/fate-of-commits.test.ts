import { describe, expect, test } from 'vitest'
import { fateOfCommits, lsnOf, runOf } from '../../../../src/store/table/postgres/fate-of-commits.js'
import { isPostgres } from '../../../../src/store/table/postgres/postgres.js'

interface Found {
  readonly started?: string
  readonly timeline: number
  readonly recoveredTo?: string
  /** Where the log stands now. */
  readonly at?: string
  readonly receivedTo?: string
  readonly version?: string
}

function found({ started = '1', timeline, recoveredTo, at = '0/500', receivedTo, version = '15.6' }: Found) {
  const file = `${timeline.toString(16).toUpperCase().padStart(8, '0')}0000000000000001`
  const run = runOf([started, file, recoveredTo ?? null, at, receivedTo ?? null, `PostgreSQL ${version} on x86_64`])
  if (run === undefined) throw new Error('it is none')
  return run
}

const witnessAt = (lsn: string) => ({ xid: '7', lsn: lsnOf(lsn) })
const LATER = { started: '2' }

test.each<[name: string, before: Found, run: Found, fate: string]>([
  ['the same run', { timeline: 1 }, { timeline: 1 }, 'kept'],
  ['a restart', { timeline: 1 }, { ...LATER, timeline: 1 }, 'recorded'],
  ['a crash', { timeline: 1 }, { ...LATER, timeline: 1, recoveredTo: '0/410' }, 'recorded'],
  [
    'a crash that has lost the end of the log',
    { timeline: 1 },
    { ...LATER, timeline: 1, recoveredTo: '0/3FF' },
    'lost',
  ],
  ['an older copy', { timeline: 1 }, { ...LATER, timeline: 1, at: '0/3FF' }, 'lost'],
  [
    'a replica that has all',
    { timeline: 1 },
    { ...LATER, timeline: 2, recoveredTo: '0/400', receivedTo: '0/400' },
    'recorded',
  ],
  [
    'a replica that lacks the last commit',
    { timeline: 1 },
    { ...LATER, timeline: 2, recoveredTo: '0/3FF', receivedTo: '0/400' },
    'lost',
  ],
  // Its own log, after its promotion, hides where it has left the old one.
  ['a crash after a promotion', { timeline: 1 }, { ...LATER, timeline: 2, recoveredTo: '0/480' }, 'in doubt'],
  [
    'a replica that had the log from an archive',
    { timeline: 1 },
    { ...LATER, timeline: 2, recoveredTo: '0/400' },
    'in doubt',
  ],
  ['a replica whose archive ended before', { timeline: 1 }, { ...LATER, timeline: 2, recoveredTo: '0/3FF' }, 'lost'],
  ['two failovers, the last one too early', { timeline: 1 }, { ...LATER, timeline: 3, recoveredTo: '0/3FF' }, 'lost'],
  ['a clean restart after a promotion', { timeline: 1 }, { ...LATER, timeline: 2 }, 'in doubt'],
  ['two failovers', { timeline: 1 }, { ...LATER, timeline: 3, recoveredTo: '0/480', receivedTo: '0/480' }, 'in doubt'],
  ['an earlier timeline', { timeline: 2 }, { ...LATER, timeline: 1 }, 'in doubt'],
  [
    'an earlier timeline of an older version',
    { timeline: 2, version: '16.2' },
    { ...LATER, timeline: 1, version: '15.6' },
    'in doubt',
  ],
  ['an upgrade', { timeline: 3, version: '15.6' }, { ...LATER, timeline: 1, version: '16.2' }, 'recorded'],
  ['an upgrade of an older copy', { timeline: 3 }, { ...LATER, timeline: 1, at: '0/3FF', version: '16.2' }, 'lost'],
  ['a minor upgrade', { timeline: 1, version: '15.6' }, { ...LATER, timeline: 1, version: '15.7' }, 'recorded'],
  [
    'an upgrade, and a failover before it',
    { timeline: 1 },
    { ...LATER, timeline: 2, recoveredTo: '0/480', version: '16.2' },
    'in doubt',
  ],
])('%s', (_, before, run, fate) => {
  expect(fateOfCommits(found(before), found(run), [witnessAt('0/100'), witnessAt('0/400')]).is).toBe(fate)
  // Nothing of this server can be lost.
  expect(fateOfCommits(found(before), found(run), []).is).toBe('kept')
})

test('a place in the log has two halves', () => {
  expect(lsnOf('1/0') - lsnOf('0/FFFFFFFF')).toBe(1n)
})

describe('other databases with the same protocol tell nothing', () => {
  test.each([
    ['PostgreSQL 15.6 (Debian 15.6-0+deb12u1) on x86_64-pc-linux-gnu, compiled by gcc', true],
    ['PostgreSQL 12.18 on aarch64-unknown-linux-gnu', true],
    ['PostgreSQL 17beta1 on x86_64-pc-linux-gnu', true],
    ['PostgreSQL 11.2-YB-2.20.1.0-b0 on x86_64-pc-linux-gnu, compiled by clang', false],
    ['PostgreSQL 15.2-YB-2025.1.0.0-b0 on x86_64-pc-linux-gnu', false],
    ['CockroachDB CCL v23.1.11 (x86_64-pc-linux-gnu, built 2023/09/27, go1.19.10)', false],
    ['', false],
  ])('%s', (version, is) => {
    expect(isPostgres(version)).toBe(is)
    const run = runOf(['1', '000000010000000000000001', null, '0/500', null, version])
    expect(run !== undefined).toBe(is)
    if (run !== undefined) expect(run.major).toBe(Number.parseInt(version.slice('PostgreSQL '.length), 10))
  })
})
