import { flagsHelp, notEmpty, readFlags } from '../flags.js'
import { repairDirectory } from '../store/leveldb/repair-directory.js'
import { amount } from './amount.js'
import type { Command } from './command.js'
import { progressLine } from './progress-line.js'

const FLAGS = {
  data: { value: 'DIR', help: 'directory of the database', default: './data' },
  'dry-run': { help: 'says what would be done and lost, and changes nothing' },
  'no-backup': { help: 'keeps no copy of the directory beside it' },
} as const

export const repair: Command = {
  help: `Usage: perkv repair [flags]

Makes a damaged database sound again: without what is damaged, and with a line for everything that is lost or changed. No
server may have it open. A copy of the directory as it was is kept beside it. Exit codes: 0 the database is sound, 1 it is
not or it could not be looked at, 2 used wrongly.

Flags:
${flagsHelp(FLAGS)}`,

  async run(args, env) {
    const flags = readFlags(FLAGS, args, env)
    const progress = progressLine()
    const say = (line: string): void => {
      progress.clear()
      process.stdout.write(`${line}\n`)
    }
    const { isSound, problems, losses } = await repairDirectory(notEmpty(flags.required('data')), {
      say,
      isDryRun: flags.isSet('dry-run'),
      keepsCopy: !flags.isSet('no-backup'),
      onProgress: progress.show,
    })
    if (!isSound) process.exitCode = 1
    if (problems === 0) return say('sound: nothing to repair')
    say(`${isSound ? 'sound' : 'still damaged'}: ${amount(problems, 'problem')}, ${amount(losses, 'loss', 'losses')}`)
  },
}
