import { expect, test } from 'vitest'
import { attachedName } from '../../../../src/store/attached-names.js'
import { openLevelDb } from '../../../../src/store/leveldb/directory/open-level-db.js'
import { checkRecords } from '../../../../src/store/leveldb/integrity/check-records.js'
import { systemKey } from '../../../../src/store/leveldb/records/keyspace.js'
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
  const nameOf = (key: string): Buffer => systemKey(attachedName(fence, utf8(key)))
  await raw.write(
    [
      { type: 'del', key: nameOf('missing') },
      { type: 'put', key: nameOf('damaged'), value: Buffer.from('no seal') },
      { type: 'del', key: nameOf('detached') }, // Says nothing that is so.
    ],
    true,
  )
  expect(await check()).toEqual([
    `damaged_record: the record of the key "damaged", attached to the fence ${fence} fails its checksum`,
    expect.stringMatching(
      /^missing_attachment: the put record of "missing" at \d+ is attached to the fence \d+, and has no record of that$/,
    ),
  ])
  await raw.close()
  const repaired = await repairDirectory(directory, { isDryRun: false, keepsCopy: false, say: () => {} })
  expect(repaired).toMatchObject({ isSound: true, losses: 0 })
  await attaching.start()
  await attaching.database.leases.remove('a', 'me', fence)
  expect(await attaching.keys()).toEqual(['detached'])
  expect(await attaching.records()).toBe(0)
})
