import { expect, test } from 'vitest'
import { openTable } from '../../src/store/table/bigtable/google-client.js'
import type { GcRule } from '../../src/store/table/bigtable/google-package.js'
import { makeTable, requireSoundTable } from '../../src/store/table/bigtable/table-admin.js'
import { startEmulator } from './emulator/emulator.mjs'
import { makeTableOf, ownAddress, withHost } from './own-table.js'
import { plant } from './plant.js'

const DAY = { maxAge: { seconds: 86_400 } }

test('a table is made once', async () => {
  const address = ownAddress()
  await expect(requireSoundTable(address)).rejects.toThrow(
    `bigtable://tests/emulator/${address.table}: there is no such table`,
  )
  expect(await makeTable(address)).toEqual({ table: true, families: ['l', 'w', 'r', 'd', 'v', 'o'] })
  await requireSoundTable(address)
  expect(await makeTable(address)).toEqual({ table: false, families: [] })
  await requireSoundTable({ ...address, appProfile: 'single' })
})

test('nothing is left of the try that finds out whether changes are allowed', async () => {
  const address = ownAddress()
  await makeTable(address)
  await requireSoundTable(address)
  const table = await openTable(address)
  expect(
    await table.rows({ ranges: [{ start: Buffer.alloc(0), end: undefined }], columns: [{ family: 'o' }] }),
  ).toEqual([])
  await table.close()
})

test('many servers make one table', async () => {
  const address = ownAddress()
  const made = await Promise.all(Array.from({ length: 5 }, () => makeTable(address)))
  expect(made.filter(({ table }) => table).length).toBe(1)
  await requireSoundTable(address)
})

test('families that are missing are added, and data stays', async () => {
  const address = ownAddress()
  await makeTableOf(address, { l: { maxNumVersions: 1 }, w: undefined, o: { maxNumVersions: 3 }, other: DAY })
  await expect(requireSoundTable(address)).rejects.toThrow('it has no column family r, d, v')
  const table = await openTable(address)
  await plant(table, Buffer.from('k'), [{ family: 'w', qualifier: Buffer.from('a'), value: Buffer.from('1') }])
  expect(await makeTable(address)).toEqual({ table: false, families: ['r', 'd', 'v'] })
  await requireSoundTable(address)
  expect(await table.rows({ keys: [Buffer.from('k')], columns: [{ family: 'w' }] })).toHaveLength(1)
  await table.close()
})

test('a rule that removes data by its age is refused', async () => {
  const rules: GcRule[] = [
    DAY,
    { union: { rules: [{ maxNumVersions: 1 }, DAY] } },
    { intersection: { rules: [{ maxNumVersions: 1 }, { union: { rules: [DAY] } }] } },
  ]
  for (const rule of rules) {
    const address = ownAddress()
    await makeTableOf(address, { l: undefined, w: rule, r: rule, d: undefined, v: undefined, o: undefined })
    const why = /^bigtable:\/\/\S+: the garbage collection of column family w, r has a maximum age/
    await expect(makeTable(address)).rejects.toThrow(why)
    await expect(requireSoundTable(address)).rejects.toThrow(why)
  }
})

test('an app profile without conditional changes is refused', async () => {
  const emulator = await startEmulator({ refuseChanges: true })
  await withHost(emulator.host, async () => {
    const address = { ...ownAddress(), appProfile: 'any-cluster' }
    await makeTable(address)
    await expect(requireSoundTable(address)).rejects.toThrow(
      /\?app_profile=any-cluster: a conditional change was refused .* must use single-cluster routing and allow single-row/,
    )
    const table = await openTable(address)
    const guard = { family: 'v', qualifier: Buffer.from('r'), value: undefined } as const
    await expect(table.change(Buffer.from('k'), guard, [{ ...guard, value: Buffer.from('1') }])).rejects.toMatchObject({
      code: 'storage_unavailable',
    })
    await table.close()
  })
  await emulator.stop()
})
