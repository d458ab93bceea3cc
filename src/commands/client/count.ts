import { UsageError } from '../../server/flags.js'
import { AT_FLAGS, BASE64_FLAG, RANGE_FLAGS, rangeOf, readAtOf } from './arguments.js'
import { clientCommand } from './client-command.js'

export const count = clientCommand({
  flags: { ...RANGE_FLAGS, ...AT_FLAGS, ...BASE64_FLAG },
  about: 'Prints the number of keys in a range. The server counts; no pairs are sent.',
  example: `$ perkv count --prefix city/
{"count":171075}`,

  async run({ db, txn, flags, screen }) {
    if (txn !== undefined) throw new UsageError('count does not see the transaction: end it first')
    const counted = await db.count({ ...rangeOf(flags), ...readAtOf(flags) })
    if (screen.form === 'lines') await screen.line({ count: counted })
    else await screen.write(`${counted}\n`)
    return undefined
  },
})
