import { expect, test } from 'vitest'
import type { SystemName } from '../../../src/store/system-records.js'
import { BIGTABLE } from '../../../src/store/table/bigtable/bigtable.js'
import { RECORD_BYTES_MAX } from '../../../src/store/table/layout/layout.js'
import { keyBytesMaxOf } from '../../../src/store/table/layout/row-keys.js'
import { codeOf, utf8 } from '../support.js'
import { MemoryTable } from './memory-table.js'
import { openTableStore } from './open-table-store.js'
import { severalDatabases } from './several-databases.js'

const NAME: SystemName = 'observer/long'

test('a record that could not be changed again is not written', async () => {
  const { system } = await openTableStore(new MemoryTable())
  const longest = Buffer.alloc(RECORD_BYTES_MAX)
  const longer = Buffer.alloc(RECORD_BYTES_MAX + 1)
  expect(await codeOf(system.replace(NAME, undefined, longer))).toBe('payload_too_large')
  expect(await codeOf(system.write([{ name: NAME, value: longer }]))).toBe('payload_too_large')
  expect(await system.get(NAME)).toBeUndefined()
  expect(await system.replace(NAME, undefined, longest)).toBe(true)
  expect(await codeOf(system.replace(NAME, longest, longer))).toBe('payload_too_large')
  expect(await system.replace(NAME, longest, utf8('short'))).toBe(true)
  await system.write([{ name: NAME, value: longest }])
  await system.write([{ name: NAME, value: undefined }])
  expect(await system.get(NAME)).toBeUndefined()
})

test('the longest registration can be changed and removed, and its keys backfilled', async () => {
  const [database] = await severalDatabases(new MemoryTable(), 1)
  if (database === undefined) throw new Error('no database')
  const bound = (first: string): Buffer => Buffer.alloc(keyBytesMaxOf(BIGTABLE), first)
  const name = 'n'.repeat(128)
  await database.observers.put(name, { range: { start: bound('a'), end: bound('b') }, backfill: true })
  expect(await database.observers.pause(name)).toMatchObject({ state: 'paused' })
  expect(await database.observers.resume(name)).toMatchObject({ name })
  await database.observers.remove(name)
  expect(await database.observers.list()).toEqual([])
  await database.close()
})
