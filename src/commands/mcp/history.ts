import { BASE64_FLAG, keyArgument, positiveOf } from '../client/arguments.js'
import { clientCommand } from '../client/client-command.js'
import { timeOf } from '../client/time-of.js'

export const history = clientCommand({
  operands: ['KEY'],
  flags: { limit: { value: 'N', help: 'versions at most' }, ...BASE64_FLAG },
  about: 'Reads the versions and deletions of a key that are kept, newest first, with the time of each commit.',
  example: '',

  async run({ db, flags, screen }) {
    const { writes, values } = await db.mvcc(keyArgument(flags), { as: 'bytes' })
    const long = new Map(values.map(({ startTs, value }) => [startTs, value]))
    const changes = writes.filter(({ type }) => type === 'put' || type === 'delete')
    for (const { type, startTs, commitTs, shortValue, expireTs } of changes.slice(
      0,
      positiveOf(flags.optional('limit')),
    )) {
      const value = type === 'put' ? (shortValue ?? long.get(startTs)) : undefined
      await screen.line({ op: type, commitTs, time: timeOf(commitTs), startTs, value, expireTs })
    }
    return undefined
  },
})
