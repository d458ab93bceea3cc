import { BASE64_FLAG, positiveOf, RANGE_FLAGS, rangeOf } from './arguments.js'
import { clientCommand } from './client-command.js'
import { shown } from './shown.js'
import { timeOf } from './time-of.js'

export const locks = clientCommand({
  flags: {
    ...RANGE_FLAGS,
    limit: { value: 'N', help: 'locks at most', variable: false },
    'max-ts': { value: 'TS', help: 'of transactions that began at or before it', variable: false },
    ...BASE64_FLAG,
  },
  about: 'Prints the locks that stand in a range, in the order of their keys: who is in the way of whom.',
  example: `$ perkv locks --prefix seat/
{"key":"seat/1","primary":"seat/1","start_ts":3677245337305088,"ttl":3000,"type":"put", ...}`,

  async run({ db, flags, screen }) {
    const limit = positiveOf(flags.optional('limit'))
    const maxTs = positiveOf(flags.optional('max-ts'))
    const standing = db.locks({ ...rangeOf(flags), limit, maxTs, as: 'bytes' })
    await screen.list(
      standing,
      ['key', 'type', 'start_ts', 'began', 'ttl_ms', 'primary'],
      ({ key, type, startTs, ttl, primary }) => {
        return [shown(key), type, String(startTs), timeOf(startTs), String(ttl), shown(primary)]
      },
    )
    return undefined
  },
})
