import { UsageError } from '../../server/flags.js'
import { AT_FLAGS, BASE64_FLAG, positiveOf, RANGE_FLAGS, rangeOf, readAtOf } from './arguments.js'
import { clientCommand } from './client-command.js'
import { shown } from './shown.js'

export const scan = clientCommand({
  flags: {
    ...RANGE_FLAGS,
    limit: { value: 'N', help: 'pairs at most', variable: false },
    reverse: { help: 'from the end', variable: false },
    'keys-only': { help: 'no values', variable: false },
    ...AT_FLAGS,
    raw: { help: 'a line per pair: the key, a tab, the value, as they are', variable: false },
    ...BASE64_FLAG,
  },
  about: 'Prints the pairs of a range in the order of their keys, all of one snapshot.',
  example: `$ perkv scan --prefix city/CH/ --limit 2
{"key":"city/CH/Basel","value":"177654","commit_ts":3677245337305090}
{"key":"city/CH/Bern","value":"134794","commit_ts":3677245337305090}`,

  async run({ db, txn, flags, screen }) {
    const keysOnly = flags.isSet('keys-only')
    const limit = positiveOf(flags.optional('limit'))
    const options = { ...rangeOf(flags), limit, reverse: flags.isSet('reverse'), keysOnly, as: 'bytes' as const }
    const at = readAtOf(flags)
    if (txn !== undefined && (at.ts ?? at.at) !== undefined)
      throw new UsageError('a transaction reads its own snapshot: give no --ts and no --at')
    const pairs =
      txn === undefined ? db.scan<'bytes', boolean>({ ...options, ...at }) : txn.scan<'bytes', boolean>(options)
    const table = screen.table(keysOnly ? ['key', 'commit_ts'] : ['key', 'commit_ts', 'value'])
    for await (const { key, commitTs, expireTs, ...pair } of pairs) {
      const value = 'value' in pair ? pair.value : undefined
      if (screen.form === 'lines') await screen.line({ key, value, commitTs, expireTs })
      else if (screen.form === 'raw')
        await screen.write(Buffer.concat([key, ...(value === undefined ? [] : [TAB, value]), NEWLINE]))
      else
        await screen.write(
          table.add([shown(key), String(commitTs ?? ''), ...(value === undefined ? [] : [shown(value)])]),
        )
    }
    if (screen.form === 'table') await screen.write(table.end())
    return undefined
  },
})

const TAB = Buffer.from('\t')
const NEWLINE = Buffer.from('\n')
