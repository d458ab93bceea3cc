import { mkdir, readFile, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { HistoryFile } from '../../../src/commands/shell/history-file.js'
import { testStores } from '../../store/support.js'

const { directory } = testStores()

test('lines are there for the next shell, newest first, and for nobody else', async () => {
  const path = HistoryFile.pathOf({ XDG_STATE_HOME: await directory() })
  const history = new HistoryFile(path)
  expect(history.load()).toEqual([])
  for (const line of ['put a 1', '', ' put secret 2', 'get a']) history.add(line)
  expect(new HistoryFile(path).load()).toEqual(['get a', 'put a 1'])
  expect((await stat(path)).mode & 0o777).toBe(0o600)
})

test('a long file is cut to its newest lines', async () => {
  const path = join(await directory(), 'history')
  await writeFile(path, Array.from({ length: 5000 }, (_, i) => `get ${i}\n`).join(''))
  const lines = new HistoryFile(path).load()
  expect([lines.length, lines[0]]).toEqual([1000, 'get 4999'])
  expect((await readFile(path, 'utf8')).split('\n')).toHaveLength(1001)
})

test('a file that cannot be used, and none at all, are done without', async () => {
  const path = join(await directory(), 'history')
  await mkdir(path)
  for (const history of [new HistoryFile(path), new HistoryFile(undefined)]) {
    history.add('get a')
    expect(history.load()).toEqual([])
  }
})

test('the file stands where the system keeps the state of programs', () => {
  expect(HistoryFile.pathOf({ HOME: '/home/ann' })).toBe('/home/ann/.local/state/perkv/history')
  expect(HistoryFile.pathOf({ HOME: '/home/ann', XDG_STATE_HOME: 'relative' })).toBe(
    '/home/ann/.local/state/perkv/history',
  )
})
