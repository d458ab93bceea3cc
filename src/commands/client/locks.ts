import { BASE64_FLAG, positiveOf, RANGE_FLAGS, rangeOf } from './arguments.js'
import { clientCommand } from './client-command.js'
import { shown } from './shown.js'
import { timeOf } from './time-of.js'
import { wireJson } from './wire-json.js'

export const locks = clientCommand({
  flags: {
    ...RANGE_FLAGS,
    limit: { value: 'N', help: 'locks at most', variable: false },
    'max-ts': { value: 'TS', help: 'of transactions that began at or before it', variable: false },
    ...BASE64_FLAG,
  },
  about: 'Prints the locks that stand in a range, in the order of their keys: who is in the way of whom.',
  example: `$ perkv locks --prefix seat/
{"locks":[{"key":"seat/1","primary":"seat/1","start_ts":3677245337305088,"ttl":3000,"type":"put", ...}]}`,

  async run({ db, flags, screen }) {
    const limit = positiveOf(flags.optional('limit'))
    const maxTs = positiveOf(flags.optional('max-ts'))
    const standing = db.locks({ ...rangeOf(flags), limit, maxTs, as: 'bytes' })
    if (screen.form === 'table') {
      const table = screen.table(['key', 'type', 'start_ts', 'began', 'ttl_ms', 'primary'])
      for await (const { key, type, startTs, ttl, primary } of standing)
        await screen.write(table.add([shown(key), type, String(startTs), timeOf(startTs), String(ttl), shown(primary)]))
      if (screen.form === 'table') await screen.write(table.end())
      return undefined
    }
    let separator = '{"locks":['
    for await (const lock of standing) {
      await screen.write(`${separator}${wireJson(lock)}`)
      separator = ','
    }
    await screen.write(separator === ',' ? ']}\n' : '{"locks":[]}\n')
    return undefined
  },
})
