import { describe, expect, test } from 'vitest'
import { encodeAck, encodeFailure, encodeNotification } from '../../../../src/observers/rules/codec/cell.js'
import { packRecord } from '../../../../src/percolator/codec/record.js'
import { type CellKind, cellName } from '../../../../src/store/cell-names.js'
import { openLevelDb } from '../../../../src/store/leveldb/directory/open-level-db.js'
import { sealedEngine } from '../../../../src/store/leveldb/engine/checksum.js'
import type { Engine, EngineOp } from '../../../../src/store/leveldb/engine/engine.js'
import type { LostRecords } from '../../../../src/store/leveldb/files/lost-records.js'
import { checkRecords } from '../../../../src/store/leveldb/integrity/check-records.js'
import { DamagedRanges } from '../../../../src/store/leveldb/integrity/damaged-ranges.js'
import { META_MARK, systemKey } from '../../../../src/store/leveldb/records/keyspace.js'
import { recordName } from '../../../../src/store/leveldb/records/record-name.js'
import { lossesOf } from '../../../../src/store/leveldb/repair/loss.js'
import { registeredObservers } from '../../../../src/store/leveldb/repair/registered-observers.js'
import { repairDirectory } from '../../../../src/store/leveldb/repair/repair-directory.js'
import type { SystemName } from '../../../../src/store/system-records.js'
import { type Timestamp, timestampFromMs } from '../../../../src/timestamp.js'
import { prewriteOf, put, START_MS, testStores, utf8 } from '../../support.js'

const stores = testStores()
const WORDS = { id: timestampFromMs(START_MS - 2000), name: 'words', range: {}, maxDepth: 0 }
const COUNTS = { id: timestampFromMs(START_MS - 1000), name: 'counts', range: {}, maxDepth: 0 }
const registrationOf = (id: Timestamp): Buffer => packRecord([id, id, 0])

async function withEngine<T>(directory: string, body: (engine: Engine) => Promise<T>): Promise<T> {
  const engine = await openLevelDb(directory)
  try {
    return await body(engine)
  } finally {
    await engine.close()
  }
}

/** Two observers, the second in the middle of a backfill; `a` and `b` are dirty for both, `c` is acknowledged, `d` parked. */
async function observed(): Promise<string> {
  const directory = await stores.directory()
  const store = await stores.open({ directory, now: () => START_MS })
  for (const observer of [WORDS, COUNTS]) store.observed.register(observer)
  await store.system.write([
    { name: 'observer/words', value: registrationOf(WORDS.id) },
    { name: 'observer/counts', value: registrationOf(COUNTS.id) },
    { name: 'observer/counts/backfill', value: packRecord([COUNTS.id, utf8('a'), 0]) },
  ])
  const mutations = ['a', 'b', 'c', 'd'].map((key) => put(key))
  await store.prewrite(prewriteOf(await store.tso(1), mutations, { tryOnePc: true }))
  const startTs = await store.tso(1)
  const commitEffects = { acks: [{ observer: 'words', key: utf8('c'), fence: startTs }] }
  await store.prewrite(prewriteOf(startTs, [], { primary: utf8('c'), tryOnePc: true, commitEffects }))
  await store.cells.change(WORDS.id, [utf8('d')], ([cell], ts) => {
    const notification = cell?.notification
    if (notification === undefined) throw new Error('it is not dirty')
    const failure = { attempts: 3, notBeforeMs: 0, error: 'no', parkedTs: ts, ...notification }
    return { value: undefined, changes: [{ key: utf8('d'), notification: null, failure }] }
  })
  await store.close()
  return directory
}

async function findingsOf(directory: string): Promise<{ lines: string[]; system: object }> {
  const lines: string[] = []
  const { system } = await withEngine(directory, (engine) =>
    checkRecords(engine, { onFinding: ({ kind, message }) => void lines.push(`${kind}: ${message}`) }),
  )
  return { lines, system }
}

async function repair(directory: string): Promise<{ lines: string[]; isSound: boolean; losses: number }> {
  const lines: string[] = []
  const options = { say: (line: string) => void lines.push(line), isDryRun: false, keepsCopy: false }
  const { isSound, losses } = await repairDirectory(directory, { ...options, now: () => START_MS })
  return { lines, isSound, losses }
}

test('records of observers and their cells are sound, and counted by kind', async () => {
  expect(await findingsOf(await observed())).toEqual({
    lines: [],
    system: { ack: 1, failure: 1, notify: 6, observer: 3 },
  })
})

test('they are named by their key and the id of their observer', () => {
  const nameOf = (name: SystemName): string => recordName(systemKey(name))
  expect([
    nameOf(cellName('notify', WORDS.id, utf8('doc/1'))),
    nameOf(cellName('ack', WORDS.id, Buffer.of(0, 0xff))),
    nameOf(cellName('failure', WORDS.id, utf8('über'))),
    nameOf('observer/words'),
    nameOf('notify/short'),
  ]).toEqual([
    `the notification of "doc/1" for the observer ${WORDS.id}`,
    `the acknowledgement of 0x00ff for the observer ${WORDS.id}`,
    `the failed run of "über" for the observer ${WORDS.id}`,
    'the observer "words"',
    'the notification "short"',
  ])
})

describe('a record that does not decode is told, and removed as a loss', () => {
  const ENTRY = { changeTs: 7, kind: 'put', depth: 0 } as const
  const failure = { attempts: 1, notBeforeMs: 0, error: '', parkedTs: 0, ...ENTRY }
  const name = (kind: CellKind) => cellName(kind, WORDS.id, utf8('a'))
  const LATER = '(observer words)'
  const RUN_AGAIN = ': what was run may be run again (observer words)'
  const CASES: Record<string, [name: SystemName, value: Buffer, told: string, consequence: string]> = {
    'a kind that there is not': [
      name('notify'),
      packRecord([7, 9, 0]),
      'the notification of "a" for',
      `: changes may never be run, until a backfill runs all keys, and others may be run again ${LATER}`,
    ],
    'a negative timestamp': [name('ack'), packRecord([-1, 2, 3]), 'the acknowledgement of "a" for', RUN_AGAIN],
    'fields that are missing': [name('ack'), packRecord([1, 2]), 'the acknowledgement of "a" for', RUN_AGAIN],
    'an error that is no text': [
      name('failure'),
      packRecord([1, 0, 7, 0, 7, 0, 0]),
      'the failed run of "a" for',
      `: parked keys may never be run, until a backfill runs all keys ${LATER}`,
    ],
    'a name without an id': ['notify/short', encodeNotification(ENTRY), 'the notification "short"', ''],
    'no name behind the kind': ['failure/', encodeFailure(failure), 'the failed run ""', ''],
    'an id that is cut short': ['ack/1234567', encodeAck({ ackTs: 1, commitTs: 2, startTs: 1 }), 'the ack', ''],
    'an observer without an id': [
      'observer/other',
      packRecord(['x', 0, 0]),
      'the observer "other"',
      ': its notifications go with it',
    ],
    'a backfill': [
      'observer/words/backfill',
      packRecord([]),
      'the observer "words/backfill"',
      ': it has to be asked for again',
    ],
  }
  test.each(Object.keys(CASES))('%s', async (what) => {
    const [bad, value, told, consequence] = CASES[what] as (typeof CASES)[string]
    const directory = await observed()
    const before = await findingsOf(directory)
    await withEngine(directory, (engine) =>
      sealedEngine(engine).write([{ type: 'put', key: systemKey(bad), value }], true),
    )
    const { lines } = await findingsOf(directory)
    expect(lines).toEqual([expect.stringMatching(/^damaged_record: .* does not decode$/)])
    expect(lines[0]).toContain(told)
    const repaired = await repair(directory)
    expect(repaired).toMatchObject({ isSound: true, losses: 1 })
    const lost = repaired.lines.find((line) => line.startsWith('lost: '))
    expect([lost?.includes(told), lost?.endsWith(`does not decode${consequence}`)]).toEqual([true, true])
    const after = await findingsOf(directory)
    expect(after.lines).toEqual([])
    if (consequence === '') expect(after.system).toEqual(before.system)
  })
})

test('a damaged checksum is told by name, and by the name of its observer', async () => {
  const directory = await observed()
  const stored = systemKey(cellName('notify', COUNTS.id, utf8('b')))
  await withEngine(directory, (engine) => engine.write([{ type: 'put', key: stored, value: Buffer.from('?') }], true))
  const { lines } = await repair(directory)
  expect(lines[0]).toBe(
    `lost: the notification of "b" for the observer ${COUNTS.id} fails its checksum: changes may never be run, until a backfill runs all keys, and others may be run again (observer counts)`,
  )
})

describe('a part of a table that is lost', () => {
  async function messagesOf(directory: string, from: SystemName, to: SystemName, areKnown = true): Promise<string[]> {
    const lost: LostRecords = {
      kind: 'range',
      file: '000005.ldb',
      range: { gte: systemKey(from), lte: systemKey(to) },
    }
    const damaged = new DamagedRanges([lost.range])
    const observers = await withEngine(directory, (engine) => registeredObservers(engine, areKnown))
    return lossesOf(lost, damaged, true, observers).map(({ message }) => message)
  }
  const first = (kind: CellKind, id: Timestamp) => cellName(kind, id, utf8('a'))

  test('names the observers whose cells may have been in it, and no others', async () => {
    const directory = await observed()
    expect(await messagesOf(directory, 'notify/', 'notify0' as SystemName)).toEqual([
      `000005.ldb: any notifications for the observers counts, words, from the first to the last: changes may never be run, until a backfill runs all keys, and others may be run again`,
    ])
    const ofWords = [first('notify', WORDS.id), cellName('notify', WORDS.id, utf8('b'))] as const
    expect(await messagesOf(directory, ...ofWords)).toEqual([
      `000005.ldb: any notifications for the observers words, from notifications near "a" for the observer ${WORDS.id} to notifications near "b" for the observer ${WORDS.id}: changes may never be run, until a backfill runs all keys, and others may be run again`,
    ])
    expect(await messagesOf(directory, 'failure/', 'failure0' as SystemName)).toEqual([
      expect.stringMatching(/any failed runs for the observers counts, words, .*: parked keys may never be run/),
    ])
    expect(await messagesOf(directory, first('ack', COUNTS.id), 'ack0' as SystemName)).toEqual([
      expect.stringMatching(/any acknowledgements for the observers counts, .*: what was run may be run again$/),
    ])
  })

  test('of an observer that was removed is no loss', async () => {
    const gone = WORDS.id - 5
    const directory = await observed()
    expect(await messagesOf(directory, first('notify', gone), cellName('notify', gone, utf8('z')))).toEqual([])
  })

  test('with observers in it says that theirs are lost too', async () => {
    const [observers, cells] = await messagesOf(await observed(), 'notify/', 'observer/w', false)
    expect(cells).toContain('any notifications for the observers counts, words, others that are lost themselves, from')
    expect(observers).toContain('any observers from')
  })
})

test('a mark that is made again is above observers, notifications and acknowledgements', {
  tags: ['long'],
}, async () => {
  const wild = timestampFromMs(START_MS + 3_600_000)
  const RECORDS: readonly [SystemName, Buffer][] = [
    ['observer/late', registrationOf(wild)],
    [cellName('notify', WORDS.id, utf8('a')), encodeNotification({ changeTs: wild, kind: 'notified', depth: 0 })],
    [cellName('ack', WORDS.id, utf8('a')), encodeAck({ ackTs: 1, commitTs: wild, startTs: 1 })],
  ]
  for (const [name, value] of RECORDS) {
    const directory = await observed()
    const ops: EngineOp[] = [
      { type: 'put', key: systemKey(name), value },
      { type: 'del', key: META_MARK },
    ]
    await withEngine(directory, (engine) => sealedEngine(engine).write(ops, true))
    expect(await repair(directory)).toMatchObject({ isSound: true, losses: 0 })
    const store = await stores.open({ directory, now: () => START_MS })
    expect(await store.tso(1)).toBeGreaterThan(wild)
    await store.close()
  }
})
