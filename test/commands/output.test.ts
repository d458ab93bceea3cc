import { readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { openOutput, PartFile } from '../../src/commands/output.js'
import { testStores, utf8 } from '../store/support.js'

const { directory } = testStores()

test('a file gets its name when it is complete, over one that was there', async () => {
  const path = join(await directory(), 'out')
  await writeFile(path, 'before')
  const output = await openOutput(path)
  await output.write(utf8('a'))
  expect(await readFile(path, 'utf8')).toBe('before')
  await output.write(utf8('b'))
  await output.finish()
  await output.close()
  expect([await readFile(path, 'utf8'), await readdir(join(path, '..'))]).toEqual(['ab', ['out']])
})

test('an incomplete file keeps its bytes for the next run, which goes on after those that it wants', async () => {
  const path = join(await directory(), 'out')
  const first = await PartFile.open(path)
  await first.write(utf8('whole, half'))
  await first.close()
  expect(await readdir(join(path, '..'))).toEqual(['out.part'])

  const second = await PartFile.open(path)
  await second.keep('whole'.length)
  await second.write(utf8('!'))
  await second.finish()
  expect(await readFile(path, 'utf8')).toBe('whole!')
})

test('nothing is left of a file without bytes', async () => {
  const path = join(await directory(), 'out')
  await (await PartFile.open(path)).close()
  expect(await readdir(join(path, '..'))).toEqual([])
})
