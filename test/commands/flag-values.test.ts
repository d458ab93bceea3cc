import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { beforeEach, describe, expect, test } from 'vitest'
import type { Connection } from '../../src/client/index.js'
import { failureOf } from '../../src/commands/client/client-command.js'
import { CLIENT_COMMANDS } from '../../src/commands/client/client-commands.js'
import { COMMANDS } from '../../src/commands/command-table.js'
import { readConfig, SERVE_FLAGS } from '../../src/server/config.js'
import type { Flags } from '../../src/server/flags.js'
import { connectTo } from '../coordinator/support.js'
import { type TestServer, testServers } from '../http/support.js'
import { runCommand } from './client/run-command.js'

const VALUES = ['0', '-1', '', '9'.repeat(400), 'text', '\0', 'k'.repeat(5000), '{}']
const FOR_PEOPLE = [
  'UsageError',
  'BigtableSetupError',
  'UnusableTable',
  'DataDirectoryError',
  'UnusableFile',
  'UnusableAddress',
]

/** cli.ts prints a stack for any other error. */
function expectForPeople(error: unknown, line: readonly string[]): void {
  if (error instanceof Error && !FOR_PEOPLE.includes(error.constructor.name) && !('code' in error))
    expect.fail(`${line.join(' ').slice(0, 200)}: ${error.stack}`)
}

/** Each flag with each value, and each operand too. */
function* linesOf(flags: Flags, operands: readonly string[]): Generator<string[]> {
  for (const value of VALUES) {
    for (const [flag, { value: named }] of Object.entries(flags))
      yield [named === undefined ? `--${flag}` : `--${flag}=${value}`, '--', ...operands]
    for (const at of operands.keys()) yield ['--', ...operands.with(at, value)]
  }
}

describe('every flag and operand with every kind of value works, or is refused in one line', () => {
  const start = testServers()
  let server: TestServer
  let db: Connection
  let directory: string
  beforeEach(async () => {
    server = await start()
    db = await connectTo(server)
    directory = await mkdtemp(join(tmpdir(), 'perkv-flags-'))
    return async () => {
      await db.close()
      await rm(directory, { recursive: true })
    }
  })

  for (const [name, { flags, operands, isEndless }] of Object.entries(CLIENT_COMMANDS))
    test(name, async () => {
      for (const args of linesOf(
        flags,
        operands.map((operand) => (operand === 'FILE|-' ? '-' : 'k')),
      )) {
        const stop = new AbortController()
        if (name === 'changes') args.unshift('--once')
        else if (isEndless) setTimeout(() => stop.abort(), 50)
        const options = { stdin: '{"ops":[]}', signal: stop.signal }
        await runCommand(db, [name, ...args], options).catch((error: unknown) =>
          expectForPeople(failureOf(error), args),
        )
      }
    })

  test.each([
    'null',
    '7',
    '{"ops":1}',
    '{"checks":[7]}',
    '{"checks":[null]}',
    '{"checks":7}',
    '{"checks":{"a":1}}',
    '{"ops":[null]}',
    '{"ops":[[]]}',
    '{"checks":[{"lease":7}]}',
    '{"ops":[{"op":"put","key":7}]}',
    '{"acks":7}',
    '{"acks":[7]}',
    '{"notify":[7]}',
    '{"positions":[7]}',
    '{"max_retries":"x","isolation":3}',
    '{"ops":[{"op":"put"}]}',
    '{"ops":[{"op":"x"}]}',
    '{"as":"x"}',
    '{',
  ])('txn of %s', async (stdin) => {
    await runCommand(db, ['txn', '-'], { stdin }).catch((error: unknown) => expectForPeople(failureOf(error), [stdin]))
  })

  test.each(['dump', 'load', 'backup', 'restore', 'check', 'repair', 'bigtable', 'store', 'completion'])(
    '%s',
    async (name) => {
      const command = await COMMANDS.get(name)?.load()
      const file = join(directory, 'file')
      const operands: Readonly<Record<string, string[]>> = {
        bigtable: ['check', 'bigtable://x'],
        store: ['check', 'postgres://x?table=a.b.c'],
        check: [],
        repair: [],
        completion: [],
      }
      for (const args of linesOf(command?.flags ?? {}, operands[name] ?? [file])) {
        await writeFile(file, '')

        await command
          ?.run(args, { PERKV_DATA: directory, PERKV_SERVER: 'http://127.0.0.1:1' })
          .catch((error: unknown) => expectForPeople(error, args))
      }
    },
  )
})

test('serve: flags, and variables of the environment', () => {
  for (const [name, flag] of Object.entries<Flags[string]>(SERVE_FLAGS))
    for (const value of VALUES) {
      const variable = flag.variable ?? `PERKV_${name.toUpperCase().replaceAll('-', '_')}`
      for (const read of [
        () => readConfig([`--${name}=${value}`], {}),
        () => readConfig([], { [String(variable)]: value }),
      ])
        try {
          read()
        } catch (error) {
          expectForPeople(error, [name, value])
        }
    }
})
