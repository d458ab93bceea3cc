import { rm } from 'node:fs/promises'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { openLevelDb } from '../../../../src/store/leveldb/directory/open-level-db.js'
import { checkDirectory } from '../../../../src/store/leveldb/integrity/check-directory.js'
import { openLevelDbStore } from '../../../../src/store/leveldb/leveldb-store.js'
import { META_FORMAT } from '../../../../src/store/leveldb/records/keyspace.js'
import { makeDirectory, START_MS } from '../../support.js'

let directory: string
beforeAll(async () => {
  directory = await makeDirectory()
})
afterAll(() => rm(directory, { recursive: true, force: true }))

test('a check whose findings cannot be reported fails, and lets the directory go', async () => {
  const options = { durability: 'async', now: () => START_MS, directory } as const
  await (await openLevelDbStore(options)).close()
  const engine = await openLevelDb(directory)
  await engine.write([{ type: 'put', key: META_FORMAT, value: Buffer.from('damaged') }], true)
  await engine.close()
  const onFinding = () => Promise.reject(new Error('the report is full'))
  await expect(checkDirectory(directory, { onFinding })).rejects.toThrow('the report is full')
  const found: string[] = []
  const { isSound } = await checkDirectory(directory, { onFinding: ({ kind }) => void found.push(kind) })
  expect([isSound, found]).toEqual([false, ['bad_meta']])
})
