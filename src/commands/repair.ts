import { flagsHelp, notEmpty, readFlags } from '../server/flags.js'
import { repairDirectory } from '../store/leveldb/repair/repair-directory.js'
import type { Command } from './command.js'
import { progressLine } from './progress-line.js'

const FLAGS = {
  data: { value: 'DIR', help: 'directory of the database', default: './data' },
  'dry-run': { help: 'prints the repairs and losses, and changes nothing' },
  'no-backup': { help: 'keeps no copy of the directory beside it' },
  'keep-later': {
    help: 'keeps the writes after a damaged record of the log; without it the log ends there, and no transaction is torn',
  },
  'reset-mark': {
    help: "lowers the oracle's mark, which a wrong clock put years ahead, to just above all data and the clock; set the clock first",
  },
} as const

export const repair: Command = {
  flags: FLAGS,
  operands: [],
  help: `Usage: perkv repair [flags]

Makes a damaged database sound again. One line per record or range: "restored" from another record that holds the same,
"removed" because nothing needs it, or "lost". With 0 lost every read answers as before. No server may have the database
open. A copy of the directory as it was is kept beside it. Interrupted, it has to be run again; until then no server starts.
Exit codes: 0 the database is sound, 1 it is not or it could not be looked at, 2 used wrongly.

Flags:
${flagsHelp(FLAGS)}`,

  async run(args, env) {
    const flags = readFlags(FLAGS, args, env)
    const progress = progressLine()
    const say = (line: string): void => {
      progress.clear()
      process.stdout.write(`${line}\n`)
    }
    const { isSound, findings, restored, removed, losses } = await repairDirectory(notEmpty(flags.required('data')), {
      say,
      isDryRun: flags.isSet('dry-run'),
      keepsCopy: !flags.isSet('no-backup'),
      keepsLater: flags.isSet('keep-later'),
      resetsMark: flags.isSet('reset-mark'),
      onProgress: progress.show,
    })
    if (!isSound) process.exitCode = 1
    if (findings === 0) return say('sound: nothing to repair')
    say(`${isSound ? 'sound' : 'still damaged'}: ${restored} restored, ${removed} removed, ${losses} lost`)
  },
}
