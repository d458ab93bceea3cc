import { expect, test } from 'vitest'
import { attachedKey } from '../../../../src/percolator/codec/attached-key.js'
import { openLevelDb } from '../../../../src/store/leveldb/directory/open-level-db.js'
import { readPage } from '../../../../src/store/leveldb/engine/engine.js'
import { checkRecords } from '../../../../src/store/leveldb/integrity/check-records.js'
import { CF_WRITE, newestKey, versionRange } from '../../../../src/store/leveldb/records/keyspace.js'
import { repairDirectory } from '../../../../src/store/leveldb/repair/repair-directory.js'
import { Attaching } from '../../../leases/attaching.js'
import { utf8 } from '../../support.js'

test('missing and damaged records of attached keys are found, and a repair makes them as they were', async () => {
  const attaching = await Attaching.open()
  const fence = await attaching.grant('a', 60_000)
  for (const key of ['missing', 'damaged', 'detached']) await attaching.attach(key, 'a', fence)
  await attaching.put('detached')
  await attaching.database.close()
  const directory = attaching.directory as string
  const raw = await openLevelDb(directory)
  const found: string[] = []
  const check = async (): Promise<string[]> => {
    found.length = 0
    await checkRecords(raw, {
      onFinding: ({ kind, message, isLoss }) => {
        found.push(`${kind}: ${message}`)
        expect(isLoss).toBe(false)
      },
    })
    return found
  }
  expect(await check()).toEqual([])
  const recordsOf = async (key: string): Promise<Buffer[]> => {
    const row = attachedKey(fence, utf8(key))
    return [...(await readPage(raw, versionRange(CF_WRITE, row), 10)).map(([stored]) => stored), newestKey(row)]
  }
  const [damaged] = await recordsOf('damaged')
  const lost = [...(await recordsOf('missing')), ...(await recordsOf('detached'))] // What is detached needs no row.
  await raw.write(
    [
      { type: 'put', key: damaged as Buffer, value: Buffer.from('no seal') },
      ...lost.map((key) => ({ type: 'del', key }) as const),
    ],
    true,
  )
  expect(await check()).toEqual([
    expect.stringMatching(/^missing_write: the put record of 0x\w+ at \d+ fails its checksum, and its copy does not$/),
    expect.stringMatching(
      /^missing_attachment: the put record of "damaged" at \d+ is attached to the fence \d+, and has no row of that$/,
    ),
    expect.stringMatching(
      /^missing_attachment: the put record of "missing" at \d+ is attached to the fence \d+, and has no row of that$/,
    ),
  ])
  await raw.close()
  const repaired = await repairDirectory(directory, { isDryRun: false, keepsCopy: false, say: () => {} })
  expect(repaired).toMatchObject({ isSound: true, losses: 0 })
  await attaching.start()
  await attaching.database.leases.remove('a', 'me', fence)
  expect(await attaching.keys()).toEqual(['detached'])
  expect(await attaching.rows()).toBe(0)
})
