import { UsageError } from '../../server/flags.js'
import { AT_FLAGS, BASE64_FLAG, keyArgument, RAW_FLAG, readAtOf } from './arguments.js'
import { clientCommand } from './client-command.js'
import { shown } from './shown.js'
import { timeOf } from './time-of.js'

export const get = clientCommand({
  operands: ['KEY'],
  flags: { ...RAW_FLAG, ...AT_FLAGS, ...BASE64_FLAG },
  about: `Prints the value of KEY, the latest or that of a moment. An absent key prints nothing, and the exit code is 1.`,
  example: `$ perkv get hello
{"key":"hello","value":"world","commit_ts":3677245337305090}`,

  async run({ db, txn, flags, screen }) {
    const key = keyArgument(flags)
    const at = readAtOf(flags)
    if (txn !== undefined && (at.ts ?? at.at) !== undefined)
      throw new UsageError('a transaction reads its own snapshot: give no --ts and no --at')
    const value = await txn?.get(key, { as: 'bytes' })
    const found = txn === undefined ? await db.getVersion(key, { as: 'bytes', ...at }) : value && { value }
    if (found === undefined) return 'absent'
    if (screen.form === 'raw') await screen.write(found.value)
    else if (screen.form === 'lines') await screen.line({ key, ...found, expireAt: undefined })
    else
      await screen.record([
        ['key', shown(key)],
        ['value', shown(found.value)],
        ...('commitTs' in found ? ([['commit_ts', `${found.commitTs}  ${timeOf(found.commitTs)}`]] as const) : []),
        ...('expireTs' in found && found.expireTs !== undefined
          ? ([['expire_ts', `${found.expireTs}  ${timeOf(found.expireTs)}`]] as const)
          : []),
      ])
    return undefined
  },
})
