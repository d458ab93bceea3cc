import { UsageError } from '../../server/flags.js'
import { BASE64_FLAG, EXPIRY_FLAGS, expiryOf, idempotencyKeyOf, keyArgument, ONCE_FLAG } from './arguments.js'
import { clientCommand } from './client-command.js'
import { printWritten } from './written.js'

export const touch = clientCommand({
  operands: ['KEY'],
  flags: {
    ...EXPIRY_FLAGS,
    persist: { help: 'the key does not expire any more', variable: false },
    ...ONCE_FLAG,
    ...BASE64_FLAG,
  },
  about: `Writes the value of KEY anew, with another expiry: give --ttl, --expire-at or --persist. An absent key prints nothing, and the
exit code is 1.`,
  example: `$ perkv touch session/7 --ttl 30m
{"commit_ts":3677245337511938}`,

  async run({ db, txn, flags, screen }) {
    const key = keyArgument(flags)
    const expiry = expiryOf(flags)
    const persist = flags.isSet('persist')
    const idempotencyKey = idempotencyKeyOf(flags)
    if (persist && expiry !== undefined) throw new UsageError('--persist does not go with --ttl and --expire-at')
    const options = persist ? { persist } : expiry
    if (options === undefined) throw new UsageError('touch needs --ttl, --expire-at or --persist')
    if (txn === undefined) {
      const written = await db.touch(key, { ...options, idempotencyKey })
      return written === undefined ? 'absent' : printWritten(screen, written.commitTs)
    }
    if (idempotencyKey !== undefined)
      throw new UsageError('--idempotency-key does not go with a transaction, whose commit takes effect once')
    return (await txn.touch(key, options)) ? printWritten(screen, undefined) : 'absent'
  },
})
