import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { killAll, runCli, startProcess, withTempDir } from './server-process.js'

afterAll(killAll)

/** A number and its noun, each that a command says. */
function amountsOf(text: string): string[] {
  return text.match(/\b[\d,]+ (?:keys?|lines?|records?|problems?|loss(?:es)?)\b/g) ?? []
}

test('commands say one key, and two keys; and what they did where there was nothing to do', () =>
  withTempDir(async (directory) => {
    const file = (name: string): string => join(directory, name)
    const data = file('data')
    const server = await startProcess(data)
    const perkv = async (...args: string[]) => {
      const { code, stdout, stderr } = await runCli([...args, '--server', server.url])
      expect({ code, stdout }).toEqual({ code: 0, stdout: '' })
      return stderr
    }
    expect(await perkv('dump')).toMatch(/^perkv dump: 0 lines, 0\.0 MB in .*: the server has no such keys\n$/)
    expect(await perkv('backup', file('empty'))).toMatch(/^perkv backup: 0 keys, 0\.0 MB in .*, ts \d+\n$/)
    await writeFile(file('none'), '')
    expect(await perkv('load', file('none'))).toMatch(/^perkv load: 0 lines, 0\.0 MB in /)
    await writeFile(file('one'), '{"key":"k","value":"v"}\n')
    expect(amountsOf(await perkv('load', file('one')))[0]).toBe('1 line')
    expect(amountsOf(await perkv('dump', file('dumped')))[0]).toBe('1 line')
    expect(amountsOf(await perkv('backup', file('backup')))[0]).toBe('1 key')
    await server.stop('SIGTERM')

    const other = await startProcess(file('other'))
    const restored = await runCli(['restore', file('backup'), '--server', other.url])
    expect(amountsOf(restored.stderr)).toEqual(['1 key', expect.stringMatching(/^[\d,]+ keys?$/)])
    await other.stop('SIGTERM')

    const checked = await runCli(['check', '--data', data])
    expect(checked.code).toBe(0)
    expect(checked.stdout).toMatch(/ 1 record, /)
  }))
