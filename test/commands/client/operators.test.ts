import { beforeEach, describe, expect, test } from 'vitest'
import type { Connection } from '../../../src/client/index.js'
import { UsageError } from '../../../src/server/flags.js'
import { connectTo } from '../../coordinator/support.js'
import { type Json, type TestServer, testServers } from '../../http/support.js'
import { linesOf, parsed, runCommand } from './run-command.js'

const start = testServers()
let server: TestServer
let db: Connection

beforeEach(async () => {
  server = await start()
  db = await connectTo(server)
  return () => db.close()
})

describe('del --prefix', () => {
  const asked = (answer: boolean) => {
    const questions: string[] = []
    const confirm = async (question: string) => {
      questions.push(question)
      return answer
    }
    return { questions, confirm }
  }

  test('says how many keys it would delete, and asks', async () => {
    for (const key of ['a/1', 'a/2', 'b/1']) await db.put(key, 'v')
    const no = asked(false)
    const { output, outcome } = await runCommand(db, ['del', '--prefix', 'a/'], { confirm: no.confirm })
    expect([parsed(output.toString()), outcome]).toEqual([[{ deleted: 0 }], 'declined'])
    expect(no.questions).toEqual(['Delete at least 2 keys with the prefix "a/"?'])
    expect(await db.count({})).toBe(3)
    expect(await linesOf(db, ['del', '--prefix', 'a/'], asked(true))).toEqual([{ deleted: 2 }])
    expect(await db.count({})).toBe(1)
  })

  test('needs --yes where nobody can be asked', async () => {
    await db.put(Buffer.of(0xff, 1), 'v')
    await expect(runCommand(db, ['del', '--prefix', 'a'])).rejects.toThrow(UsageError)
    expect(await linesOf(db, ['del', '--prefix', '/w==', '--base64', '--yes'])).toEqual([{ deleted: 1 }])
    expect(await linesOf(db, ['del', '--prefix', 'a', '--yes'])).toEqual([{ deleted: 0 }])
  })

  test('asks also where it counts nothing, because a running commit may bring keys', async () => {
    const confirm = async () => {
      await db.put('a/1', 'v')
      return false
    }
    expect(await linesOf(db, ['del', '--prefix', 'a/'], { confirm })).toEqual([{ deleted: 0 }])
    expect(await db.count({})).toBe(1)
  })

  test('deletes nothing more once it is interrupted', async () => {
    await db.put('a/1', 'v')
    const stop = new AbortController()
    const confirm = async () => {
      stop.abort()
      return true
    }
    await expect(runCommand(db, ['del', '--prefix', 'a/'], { confirm, signal: stop.signal })).rejects.toThrow()
    expect(await db.count({})).toBe(1)
  })

  test('of more keys than a transaction takes, all', { tags: ['long'] }, async () => {
    await db.atomic({ ops: Array.from({ length: 10_500 }, (_, i) => ({ op: 'put', key: `many/${i}`, value: '' })) })
    expect(await linesOf(db, ['del', '--prefix', 'many/', '--yes'])).toEqual([{ deleted: 10_500 }])
    expect(await db.count({})).toBe(0)
  })
})

test('consumers are listed, reset and deleted', async () => {
  const { commitTs } = await db.put('a/1', 'v')
  await db.consumers.put('index', { prefix: 'a/' })
  expect(await linesOf(db, ['consumers'])).toEqual((await server.get('/v1/consumers')).json<Json>()['consumers'])
  expect(await linesOf(db, ['consumers', 'index', '--reset', '--since', String(commitTs - 1)])).toMatchObject([
    { name: 'index', prefix: 'a/', position: commitTs - 1 },
  ])
  const shown = await runCommand(db, ['consumers'], { isTerminal: true, columns: 200 })
  expect(shown.output.toString()).toMatch(/^name {3}position.*\nindex {2}\d+ {2}20\S+Z .* false {4}a\/\*\n$/)
  expect(await linesOf(db, ['consumers', 'index', '--delete'])).toEqual([{ deleted: 'index' }])
  expect(await linesOf(db, ['consumers'])).toEqual([])
  await expect(runCommand(db, ['consumers', 'index', '--reset'])).rejects.toMatchObject({ code: 'not_found' })
})

test('pins are listed and deleted; gc says what holds it back', async () => {
  const { commitTs } = await db.put('a', '1')
  await db.put('a', '2')
  const pin = (await server.post('/v1/admin/pins', { ts: commitTs })).json<Json>()
  expect(await linesOf(db, ['pins'])).toEqual([pin])
  expect(await linesOf(db, ['gc', '--life-time', '0'])).toEqual([
    { safe_point: commitTs, versions_removed: 0, held_back_by: 'pin' },
  ])
  expect(await linesOf(db, ['pins', '--delete', String(pin['pin'])])).toEqual([{ deleted: pin['pin'] }])
  expect(await linesOf(db, ['pins'])).toEqual([])
  const [run] = (await linesOf(db, ['gc', '--life-time', '0'])) as Json[]
  expect(run).toEqual({ safe_point: expect.any(Number), versions_removed: 1 })
  const { output } = await runCommand(db, ['gc'], { isTerminal: true })
  expect(output.toString()).toMatch(/^safe_point +\d+ {2}20\S+Z\nversions_removed {2}0\n/)
  await expect(runCommand(db, ['pins', '--delete', 'nix'])).rejects.toMatchObject({ code: 'not_found' })
})

test.each([
  [['del', 'k', '--prefix', 'a'], /--prefix does not go with KEY/],
  [['del'], /KEY is empty/],
  [['del', '--prefix', '', '--yes'], /--prefix is empty/],
  [['del', '--prefix', 'a', '--if-match', '5'], /conditions do not go with --prefix/],
  [['consumers', '--reset'], /--reset needs the NAME of a consumer/],
  [['consumers', 'c', '--since', '5'], /--since goes with --reset/],
  [['consumers', 'c', '--reset', '--delete'], /--reset does not go with --delete/],
  [['gc', '--life-time', '5'], /--life-time must be a time/],
  [['gc', '--life-time', '5s', '--safe-point', '5'], /--safe-point does not go with --life-time/],
  [['pins', '--delete', ''], /--delete is empty/],
])('%j is used wrongly', async (args, message) => {
  const run = async () => runCommand(db, args)
  await expect(run()).rejects.toThrow(UsageError)
  await expect(run()).rejects.toThrow(message)
})
