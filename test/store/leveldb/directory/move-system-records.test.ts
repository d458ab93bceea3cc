import { copyFile, readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, test } from 'vitest'
import { encodeBound } from '../../../../src/percolator/codec/key.js'
import { OUTCOMES } from '../../../../src/percolator/codec/outcome-key.js'
import { packRecord } from '../../../../src/percolator/codec/record.js'
import { reservedKey } from '../../../../src/percolator/codec/reserved-key.js'
import { FORMAT_VERSION, formatOp, readFormat } from '../../../../src/store/leveldb/directory/data-directory.js'
import {
  OUTCOMES_OF_FORMAT_3,
  SERVER_OF_FORMAT_3,
} from '../../../../src/store/leveldb/directory/move-system-records.js'
import { openLevelDb } from '../../../../src/store/leveldb/directory/open-level-db.js'
import { sealedOp } from '../../../../src/store/leveldb/engine/checksum.js'
import { type Engine, readPage } from '../../../../src/store/leveldb/engine/engine.js'
import { checkDirectory } from '../../../../src/store/leveldb/integrity/check-directory.js'
import {
  AHEAD,
  CF_NEWEST,
  CF_SYSTEM,
  CF_WRITE,
  META_FORMAT,
  metaKey,
  systemKey,
} from '../../../../src/store/leveldb/records/keyspace.js'
import { repairDirectory } from '../../../../src/store/leveldb/repair/repair-directory.js'
import type { Store } from '../../../../src/store/store.js'
import type { SystemName } from '../../../../src/store/system-records.js'
import { okBody, type TestServer, testServers } from '../../../http/support.js'
import { EngineFailure, put, read, TappedEngine, testStores, utf8, write } from '../../support.js'
import { makeOlder } from './old-format.js'

const stores = testStores()
const startServer = testServers()

/** Stored keys of system records, old places and new. */
const isSystemKey = (key: Buffer): boolean =>
  key[0] === OUTCOMES_OF_FORMAT_3.gte[0] || key[0] === CF_SYSTEM || key.subarray(1, 8).equals(utf8('server/'))

/** The values of their rows, by key. */
async function outcomesIn(store: Store): Promise<readonly Uint8Array[]> {
  const found: Uint8Array[] = []
  await store.sweepRows(OUTCOMES, (value) => found.push(value) < 0)
  return found
}

const outcomeRow = (name: string) => reservedKey(Buffer.from(`outcome/${name}`))

/** Fails the write of this number, counted from 1, and all later ones: nothing of the conversion comes after it. */
async function openUntilWrite(directory: string, last: number): Promise<TappedEngine> {
  const tapped = new TappedEngine()
  tapped.onWrite = async (_, land) => {
    if (tapped.writes.length >= last) throw new EngineFailure('disk full')
    await land()
  }
  await expect(stores.open({ directory, openEngine: tapped.open })).rejects.toThrow('disk full')
  return tapped
}

async function writesOfConversion(directory: string): Promise<number> {
  const tapped = new TappedEngine()
  const store = await stores.open({ directory, openEngine: tapped.open })
  await store.close()
  const isPart = tapped.writes.map(({ ops }) => ops.some(({ key }) => isSystemKey(key) || key.equals(META_FORMAT)))
  return isPart.lastIndexOf(true) + 1
}

async function expectNothingConverted(directory: string): Promise<void> {
  expect(await writesOfConversion(directory)).toBe(0)
}

/** By all that `perkv check` says. */
async function expectSound(directory: string): Promise<void> {
  const messages: string[] = []
  const checked = await checkDirectory(directory, { onFinding: ({ message }) => void messages.push(message) })
  expect([checked.isSound, messages]).toEqual([true, []])
}

async function raw<T>(directory: string, body: (engine: Engine) => Promise<T>): Promise<T> {
  const engine = await openLevelDb(directory)
  try {
    return await body(engine)
  } finally {
    await engine.close()
  }
}

describe('a directory that release 0.1.0 has written', () => {
  const WRITTEN = fileURLToPath(new URL('./format-3/', import.meta.url))
  /** A second after it was closed. */
  const NOW_MS = 1_795_355_321_000
  const PIN = { pin: 'JvrEww8WnTOtAn9S', ts: 3676887686524928 }

  async function copyOfWritten(): Promise<string> {
    const directory = await stores.directory()
    for (const file of await readdir(WRITTEN)) await copyFile(join(WRITTEN, file), join(directory, file))
    return directory
  }

  const kv = async (server: TestServer, key: string, ts?: number): Promise<string> => {
    const { statusCode, body } = await server.get(`/v1/kv/${key}${ts === undefined ? '' : `?ts=${ts}`}`)
    return statusCode === 200 ? body : String(statusCode)
  }

  async function expectAsItWas(directory: string): Promise<void> {
    let nowMs = NOW_MS
    const server = await startServer({ directory, now: () => nowMs })
    const versions = [3676887684880385, 3676887685033985, undefined].map((ts) => kv(server, 'apple', ts))
    expect(await Promise.all(versions)).toEqual(['red', 'green', 'golden'])
    expect([await kv(server, 'pear', 3676887685183489), await kv(server, 'pear')]).toEqual(['yellow', '404'])
    expect(await kv(server, 'long')).toBe('x'.repeat(2000))
    expect(await server.mvcc('gone')).toMatchObject({ writes: [{ type: 'rollback', start_ts: 3676887685849090 }] })
    const { locks } = await server.ok('scan_lock', { max_ts: 2 ** 53 - 1 })
    expect(locks).toMatchObject(
      ['locked', 'locked too'].map((key) => ({ key, primary: 'locked', start_ts: 3676887685849089, ttl: 86_400_000 })),
    )
    const putOnce = await server.send(
      'PUT',
      '/v1/kv/once',
      { 'content-type': 'application/x-www-form-urlencoded', 'idempotency-key': 'put once' },
      '1',
    )
    expect([putOnce.headers['idempotency-replayed'], okBody(putOnce)]).toEqual([
      'true',
      { commit_ts: 3676887686377473 },
    ])
    const ops = [
      { op: 'increment', key: 'count', by: 1 },
      { op: 'get', key: 'apple' },
    ]
    const counted = await server.post('/v1/txn', { ops }, { 'idempotency-key': 'count once' })
    expect([counted.headers['idempotency-replayed'], okBody(counted).commit_ts]).toEqual(['true', 3676887693568001])
    expect(await kv(server, 'count')).toBe('1')
    expect(await outcomesIn(server.store)).toHaveLength(3)
    expect(okBody(await server.get('/v1/admin/pins'))).toMatchObject({ pins: [PIN] })
    expect(okBody(await server.get('/v1/status'))).toMatchObject({
      safe_point: 3676000000000002,
      counts: { locks: 2 },
    })
    // The pin holds the collection back, and is the reason that the older version is still there.
    await server.ok('resolve_lock', { start_ts: 3676887685849089, commit_ts: 0 })
    nowMs += 3_600_000
    expect(okBody(await server.post('/v1/admin/gc', {}))).toMatchObject({
      safe_point: PIN.ts,
      held_back_by: 'pin',
    })
    expect(await kv(server, 'apple', PIN.ts)).toBe('green')
    await server.app.close()
    await server.store.close()
    await expectSound(directory)
    await expectNothingConverted(directory)
  }

  test('is read as it was, and converted once', async () => {
    const directory = await copyOfWritten()
    await expectAsItWas(directory)
  })

  test('is told of before it is converted, and never again', async () => {
    const directory = await copyOfWritten()
    const told: unknown[] = []
    const onConvert = (...formats: number[]) => void told.push(formats)
    for (let i = 0; i < 2; i++) await (await stores.open({ directory, onConvert })).close()
    expect(told).toEqual([[3, FORMAT_VERSION]])
  })

  test('is refused by check until it is converted', async () => {
    const directory = await copyOfWritten()
    const check = () => checkDirectory(directory, { onFinding: () => {} })
    await expect(check()).rejects.toThrow('has format 3: perkv serve converts it')
    await openUntilWrite(directory, 3)
    await expect(check()).rejects.toThrow(
      `was being converted to format ${FORMAT_VERSION}: perkv serve goes on with it`,
    )
  })

  test('a crash at any batch of the conversion is made up for', async () => {
    const writes = await writesOfConversion(await copyOfWritten())
    expect(writes).toBe(3) // The format, the outcomes, the pin.
    for (let last = 1; last <= writes; last++) {
      const directory = await copyOfWritten()
      await openUntilWrite(directory, last)
      // An older PerKV refuses it from the first batch on, and reads all of it before.
      expect(await raw(directory, readFormat)).toBe(last === 1 ? 3 : FORMAT_VERSION)
      await expectAsItWas(directory)
    }
  })

  test('a repair converts it too', async () => {
    const directory = await copyOfWritten()
    const repaired = await repairDirectory(directory, { say: () => {}, isDryRun: false, keepsCopy: false })
    expect(repaired).toMatchObject({ isSound: true, losses: 0 })
    await expectAsItWas(directory)
  })

  test('a repair that has to make the format record anew converts it too', async () => {
    const directory = await copyOfWritten()
    await raw(directory, (engine) => engine.write([{ type: 'put', key: META_FORMAT, value: utf8('damaged') }], true))
    const repaired = await repairDirectory(directory, { say: () => {}, isDryRun: false, keepsCopy: false })
    expect(repaired).toMatchObject({ isSound: true, losses: 0 })
    await expectAsItWas(directory)
  })
})

describe('many outcomes of an older format', () => {
  const COUNT = 60
  const VALUE = Buffer.alloc(40_000, 'v')
  const recordOf = (i: number): Buffer => packRecord([i, i, VALUE])
  const nameOf = (i: number) => `outcome/\xff\x00 ${String(i).padStart(3, '0')}` as string as SystemName

  async function filled(): Promise<string> {
    const directory = await stores.directory()
    const store = await stores.open({ directory })
    await write(store, 1, 2, [put('a')])
    await store.system.write(Array.from({ length: COUNT }, (_, i) => ({ name: nameOf(i), value: recordOf(i) })))
    await store.system.write([{ name: 'pin/a', value: packRecord([1, 2]) }])
    await store.close()
    return directory
  }

  async function expectMoved(store: Store): Promise<void> {
    const outcomes = await outcomesIn(store)
    expect(outcomes).toHaveLength(COUNT)
    for (const [i, value] of outcomes.entries()) expect(recordOf(i).equals(value)).toBe(true)
    const { found } = await store.get({ key: reservedKey(Buffer.from(nameOf(COUNT - 1), 'latin1')) })
    expect(found).toBe(true)
    expect(await store.system.list('pin/')).toEqual(new Map([['pin/a', packRecord([1, 2])]]))
    expect(await read(store, 'a')).toBe('value of a')
  }

  test.each([1, 2, 3] as const)('from format %i, in batches of bounded size, over a crash at each', async (version) => {
    const isOfFormat2 = (key: Buffer): boolean => version === 1 && (key[0] === AHEAD || key[0] === CF_NEWEST)
    const make = async (): Promise<string> => {
      const directory = await filled()
      await makeOlder(directory, version, isOfFormat2)
      return directory
    }
    const writes = await writesOfConversion(await make())
    expect(writes).toBeGreaterThan(3)
    for (let last = 1; last <= writes; last++) {
      const directory = await make()
      const tapped = await openUntilWrite(directory, last)
      for (const { ops, sync } of tapped.writes) {
        expect(sync).toBe(true)
        if (!ops.some(({ key }) => key[0] === CF_SYSTEM)) continue
        const bytes = ops.reduce((sum, op) => sum + (op.type === 'put' ? op.value.length : 0), 0)
        expect(bytes).toBeLessThan(2 * 1024 * 1024)
      }
      const store = await stores.open({ directory })
      await expectMoved(store)
      await store.close()
      await expectSound(directory)
      await expectNothingConverted(directory)
    }
  })

  test('one that fails its checksum does not stop the start, and check tells it', async () => {
    const directory = await filled()
    await makeOlder(directory, 3)
    const damaged = Buffer.from('idamaged')
    await raw(directory, (engine) =>
      engine.write([{ type: 'put', key: damaged, value: utf8('not what its seal says') }], true),
    )
    const store = await stores.open({ directory })
    await expect(store.mvccGetByKey({ key: outcomeRow('damaged') })).rejects.toThrow('fails its checksum')
    await store.close()
    const said: string[] = []
    const repaired = await repairDirectory(directory, {
      say: (line) => said.push(line),
      isDryRun: false,
      keepsCopy: false,
    })
    expect(repaired).toMatchObject({ isSound: true, losses: 1 })
    expect(said.join('\n')).toContain('the write record of the server\'s row "outcome/damaged" at 2 fails its checksum')
    await expectMoved(await stores.open({ directory }))
  })

  test('a directory with keys of users that are reserved now is refused, and stays as it is', async () => {
    const directory = await filled()
    await makeOlder(directory, 3)
    const key = encodeBound(CF_WRITE, utf8('\0\0perkv/mine'))
    await raw(directory, (engine) => engine.write([{ type: 'put', key, value: utf8('') }], true))
    await expect(stores.open({ directory })).rejects.toThrow('which are reserved for the server now')
    expect(await raw(directory, readFormat)).toBe(3)
  })

  test('where one has come back from the dead, the record under its new name stays', async () => {
    const directory = await filled()
    await raw(directory, (engine) =>
      engine.write(
        [
          formatOp(FORMAT_VERSION),
          sealedOp({ type: 'put', key: Buffer.from('inew'), value: packRecord([0, 0, 'old']) }),
          sealedOp({ type: 'put', key: systemKey('outcome/new'), value: packRecord([0, 0, utf8('new')]) }),
          sealedOp({ type: 'put', key: metaKey('server/pin/a'), value: packRecord([7, 7]) }),
        ],
        true,
      ),
    )
    const store = await stores.open({ directory })
    expect(await store.get({ key: outcomeRow('new') })).toMatchObject({ value: packRecord([0, 0, utf8('new')]) })
    expect(await store.system.get('pin/a')).toEqual(packRecord([1, 2]))
    await store.close()
    for (const range of [OUTCOMES_OF_FORMAT_3, SERVER_OF_FORMAT_3])
      expect(await raw(directory, (engine) => readPage(engine, range, 1))).toEqual([])
  })
})
