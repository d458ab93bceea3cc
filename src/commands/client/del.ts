import { UsageError } from '../../server/flags.js'
import { BASE64_FLAG, idempotencyKeyOf, keyArgument, ONCE_FLAG, positiveOf } from './arguments.js'
import { clientCommand } from './client-command.js'
import { printWritten } from './written.js'

export const del = clientCommand({
  operands: ['KEY'],
  flags: {
    'if-match': { value: 'TS', help: 'only the version with this commit_ts', variable: false },
    ...ONCE_FLAG,
    ...BASE64_FLAG,
  },
  about: 'Deletes KEY. Deleting an absent key succeeds.',
  example: `$ perkv del hello
{"commit_ts":3677245337305090}`,

  async run({ db, txn, flags, screen }) {
    const key = keyArgument(flags)
    const ifMatch = positiveOf(flags.optional('if-match'))
    const idempotencyKey = idempotencyKeyOf(flags)
    if (txn !== undefined && (ifMatch ?? idempotencyKey) !== undefined)
      throw new UsageError('conditions do not go with a transaction, whose commit checks what it has read')
    if (txn !== undefined) return printWritten(screen, (await txn.delete(key)) ?? undefined)
    const condition = ifMatch === undefined ? {} : { ifMatch }
    return printWritten(screen, (await db.delete(key, { ...condition, idempotencyKey })).commitTs)
  },
})
