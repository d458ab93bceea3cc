import { BASE64_FLAG, positiveOf, RANGE_FLAGS, rangeOf } from '../client/arguments.js'
import { clientCommand } from '../client/client-command.js'
import { holderOf } from './holder.js'

export const explainLocks = clientCommand({
  flags: { ...RANGE_FLAGS, limit: { value: 'N', help: 'locks at most' }, ...BASE64_FLAG },
  about:
    'Lists the locks that stand in a range, and explains each: which transaction holds it and since when, its primary key, how many milliseconds its TTL leaves, whether the transaction is running, committed, rolled back or abandoned, and what ends the lock. Changes nothing.',
  example: '',

  async run({ db, flags, screen }) {
    const range = rangeOf(flags)
    const { ts: now } = await db.snapshot()
    for await (const lock of db.locks({ ...range, limit: positiveOf(flags.optional('limit')), as: 'bytes' }))
      await screen.line({ key: lock.key, type: lock.type, transaction: await holderOf(db, lock, now) })
    return undefined
  },
})
