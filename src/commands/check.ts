import { flagsHelp, integer, notEmpty, readFlags } from '../server/flags.js'
import { checkDirectory } from '../store/leveldb/integrity/check-directory.js'
import type { Finding } from '../store/leveldb/integrity/check-key.js'
import { amount } from './amount.js'
import type { Command } from './command.js'
import { progressLine } from './progress-line.js'

const FLAGS = {
  data: { value: 'DIR', help: 'directory of the database', default: './data' },
  json: { help: 'one JSON object instead of lines' },
  'problems-max': { value: 'N', help: 'problems that are shown; all are counted', default: '100' },
} as const

export const check: Command = {
  flags: FLAGS,
  operands: [],
  help: `Usage: perkv check [flags]

Verifies a database that no server has open: the checksums of its files and of every record, and that the records agree
with each other. One line per problem. Exit codes: 0 sound, 1 damaged or could not run, 2 used wrongly.

Flags:
${flagsHelp(FLAGS)}`,

  async run(args, env) {
    const flags = readFlags(FLAGS, args, env)
    const directory = notEmpty(flags.required('data'))
    const shownMax = integer(flags.required('problems-max'), 0, 1_000_000)
    const isJson = flags.isSet('json')
    const progress = progressLine()
    const findings: Finding[] = []
    const { files, records, isSound } = await checkDirectory(directory, {
      onFinding: (finding) => void (findings.length < shownMax && findings.push(finding)),
      onProgress: progress.show,
    })
    progress.clear()
    if (!isSound) process.exitCode = 1
    if (isJson) {
      const shown = findings.map(({ kind, key, ts, message }) => ({
        kind,
        ...(key && { key: { base64: Buffer.from(key).toString('base64') } }),
        ...(ts !== undefined && { ts }),
        message,
      }))
      const { bytes, files: count, faults } = files
      const damage = faults.map(({ file, message }) => ({ file, message }))
      const counts = records && {
        keys: records.keys,
        families: records.families,
        system: records.system,
        problems: records.findings,
      }
      return print(
        JSON.stringify({ sound: isSound, files: { count, bytes, damage }, records: counts, problems: shown }),
      )
    }
    for (const { message } of files.faults) print(`damaged_file: ${message}`)
    for (const { kind, message } of findings) print(`${kind}: ${message}`)
    if (records === undefined) return print('damaged: files; their records are left alone until perkv repair has run')
    if (records.findings > findings.length) print(`... ${amount(records.findings, 'problem')} in all`)
    print(`files     ${files.files}, tables ${mb(files.bytes)}`)
    for (const [name, counted] of Object.entries(records.families))
      print(
        `${name.padEnd(9)} ${amount(counted.records, 'record')}, ${mb(counted.bytes)}${name === 'system' ? kindsOf(records.system) : ''}`,
      )
    print(`keys      ${records.keys.toLocaleString('en')}`)
    print(isSound ? 'sound' : `damaged: ${amount(records.findings, 'problem')}`)
  },
}

function kindsOf(system: Readonly<Record<string, number>>): string {
  const kinds = Object.entries(system).map(([kind, count]) => `${kind} ${count.toLocaleString('en')}`)
  return kinds.length === 0 ? '' : `: ${kinds.join(', ')}`
}

function mb(bytes: number): string {
  return `${(bytes / 1e6).toLocaleString('en', { maximumFractionDigits: 1 })} MB`
}

function print(line: string): void {
  process.stdout.write(`${line}\n`)
}
