import { UsageError } from '../../server/flags.js'
import { AT_FLAGS, BASE64_FLAG, RANGE_FLAGS, rangeOf, readAtOf } from './arguments.js'
import { clientCommand } from './client-command.js'
import { timeOf } from './time-of.js'

export const count = clientCommand({
  flags: { ...RANGE_FLAGS, ...AT_FLAGS, ...BASE64_FLAG },
  about: `Prints the number of keys in a range, and the snapshot that was counted. The server counts; no pairs are sent. While a transaction
that lives holds locks in the range, it is the snapshot just below them.`,
  example: `$ perkv count --prefix city/
{"count":171075,"ts":3677245337511938}`,

  async run({ db, txn, flags, screen }) {
    if (txn !== undefined) throw new UsageError('count does not see the transaction: end it first')
    const { count, ts } = await db.countAsOf({ ...rangeOf(flags), ...readAtOf(flags) })
    if (screen.form === 'lines') await screen.line({ count, ts })
    else
      await screen.record([
        ['count', String(count)],
        ['ts', `${ts}  ${timeOf(ts)}`],
      ])
    return undefined
  },
})
