import { expect, test } from 'vitest'
import { CLIENT_COMMANDS } from '../../../src/commands/client/client-commands.js'
import { complete } from '../../../src/commands/shell/complete.js'
import { connectTo } from '../../coordinator/support.js'
import { testServers } from '../../http/support.js'

const start = testServers()
const commands = new Map(Object.entries(CLIENT_COMMANDS))

test('commands, flags, and keys one level at a time', async () => {
  const db = await connectTo(await start())
  const keys = ['city/CH/Bern', 'city/CH/Chur', 'city/DE/Ulm', 'city', 'with space', 'x\u001by']
  await db.atomic({
    ops: [...keys, new Uint8Array([0x63, 0xff])].map((key) => ({ op: 'put', key, value: '' }) as const),
  })
  const table: [string, string[]][] = [
    ['', [...commands.keys()].map((name) => `${name} `)],
    ['c', ['count ', 'changes ', 'consumers ']],
    ['scan --ke', ['--keys-only ']],
    ['scan --', Object.keys(CLIENT_COMMANDS.scan.flags).map((flag) => `--${flag} `)],
    ['get -- --r', []],
    ['nope ', []],
    ['get ', ['city', 'city/', 'with\\ space']],
    ['get city/', ['city/CH/', 'city/DE/']],
    ['get city/CH/', ['city/CH/Bern', 'city/CH/Chur']],
    ['get --raw city/D', ['city/DE/']],
    ['get --ts 5 city/D', ['city/DE/']],
    ['get --ts ', []],
    ['scan --prefix city/CH/B', ['city/CH/Bern']],
    ['get wi', ['with\\ space']],
    ['get with\\ s', ['with\\ space']],
    ["get 'wi", []],
    ['put city/DE/Ulm ', []],
  ]
  for (const [line, want] of table) expect([line, (await complete(line, commands, db))[0]]).toEqual([line, want])
  expect((await complete('get with\\ s', commands, db))[1]).toBe('with\\ s')
  await db.close()
  expect(await complete('get c', commands, db)).toEqual([[], 'c'])
})

test('of many keys some are shown, and the last', { tags: ['long'] }, async () => {
  const db = await connectTo(await start())
  const keys = Array.from({ length: 300 }, (_, i) => `k${String(i).padStart(3, '0')}`)
  await db.atomic({ ops: keys.map((key) => ({ op: 'put', key, value: '' }) as const) })
  const [shown] = await complete('get k', commands, db)
  expect(shown).toContain('k000')
  expect(shown.at(-1)).toBe('k299')
  expect(shown.length).toBeLessThanOrEqual(101)
  await db.close()
})
