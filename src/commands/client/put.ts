import { UsageError } from '../../server/flags.js'
import {
  allOf,
  argumentBytes,
  BASE64_FLAG,
  EXPIRY_FLAGS,
  expiryOf,
  idempotencyKeyOf,
  keyArgument,
  ONCE_FLAG,
  positiveOf,
} from './arguments.js'
import { clientCommand } from './client-command.js'
import { printWritten } from './written.js'

/** The longest value that any server may accept. */
const VALUE_BYTES_MAX = 256 * 1024 * 1024

export const put = clientCommand({
  operands: ['KEY', 'VALUE|-'],
  flags: {
    'if-match': { value: 'TS', help: 'only over the version with this commit_ts', variable: false },
    'if-absent': { help: 'only where there is nothing', variable: false },
    ...EXPIRY_FLAGS,
    ...ONCE_FLAG,
    ...BASE64_FLAG,
  },
  about: `Writes VALUE at KEY. With - the value is all of stdin, byte by byte, a newline at its end included. Put -- before a key or a
value that begins with a dash. A condition that does not hold is precondition_failed, and the exit code is 1. With --ttl or
--expire-at the key is absent from then on, unless it is written again.`,
  example: `$ perkv put hello world
{"commit_ts":3677245337305090}
$ perkv put photo - < photo.jpg
{"commit_ts":3677245337511938}`,

  async run({ db, txn, flags, screen, stdin }) {
    const key = keyArgument(flags)
    const text = flags.positionals[1] ?? ''
    const ifMatch = positiveOf(flags.optional('if-match'))
    const ifAbsent = flags.isSet('if-absent')
    const idempotencyKey = idempotencyKeyOf(flags)
    if (ifAbsent && ifMatch !== undefined) throw new UsageError('--if-match does not go with --if-absent')
    if (txn !== undefined && (ifAbsent || (ifMatch ?? idempotencyKey) !== undefined))
      throw new UsageError('conditions do not go with a transaction, whose commit checks what it has read')
    const value = text === '-' ? await allOf(stdin, VALUE_BYTES_MAX) : argumentBytes({ text, from: 'VALUE' }, flags)
    const expiry = expiryOf(flags)
    if (txn !== undefined) return printWritten(screen, (await txn.put(key, value, expiry)) ?? undefined)
    const condition = ifAbsent ? { ifAbsent } : ifMatch !== undefined ? { ifMatch } : {}
    return printWritten(screen, (await db.put(key, value, { ...condition, ...expiry, idempotencyKey })).commitTs)
  },
})
