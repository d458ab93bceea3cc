import { UsageError } from '../../server/flags.js'
import { amount } from '../amount.js'
import { argumentBytes, BASE64_FLAG, idempotencyKeyOf, keyArgument, ONCE_FLAG, positiveOf } from './arguments.js'
import { type Call, clientCommand } from './client-command.js'
import { shown } from './shown.js'
import { printWritten } from './written.js'

/** Keys in one transaction. */
const PORTION = 10_000

export const del = clientCommand({
  operands: ['[KEY]'],
  flags: {
    'if-match': { value: 'TS', help: 'only the version with this commit_ts', variable: false },
    prefix: { value: 'KEY', help: 'all keys that begin with it, in place of KEY', variable: false },
    yes: { help: 'with --prefix: does not ask', variable: false },
    ...ONCE_FLAG,
    ...BASE64_FLAG,
  },
  about: `Deletes KEY. Deleting an absent key succeeds. With --prefix it counts the keys, and asks before it deletes them; without a terminal
it needs --yes. It deletes ${amount(PORTION, 'key')} in a transaction: of more, it deletes the first ones first.`,
  example: `$ perkv del hello
{"commit_ts":3677245337305090}
$ perkv del --prefix session/ --yes
{"deleted":1204}`,

  async run(call) {
    const { db, txn, flags, screen } = call
    const ifMatch = positiveOf(flags.optional('if-match'))
    const idempotencyKey = idempotencyKeyOf(flags)
    const prefix = flags.optional('prefix')
    if (prefix !== undefined) {
      if (flags.positionals.length > 0) throw new UsageError('--prefix does not go with KEY')
      if ((ifMatch ?? idempotencyKey) !== undefined) throw new UsageError('conditions do not go with --prefix')
      if (txn !== undefined) throw new UsageError('--prefix does not go with a transaction: end it first')
      if (prefix.text === '') throw new UsageError('--prefix is empty: that would be every key')
      return deletePrefix(call, argumentBytes(prefix, flags))
    }
    const key = keyArgument(flags)
    if (txn !== undefined && (ifMatch ?? idempotencyKey) !== undefined)
      throw new UsageError('conditions do not go with a transaction, whose commit checks what it has read')
    if (txn !== undefined) return printWritten(screen, (await txn.delete(key)) ?? undefined)
    const condition = ifMatch === undefined ? {} : { ifMatch }
    return printWritten(screen, (await db.delete(key, { ...condition, idempotencyKey })).commitTs)
  },
})

async function deletePrefix(call: Call<'yes'>, prefix: Uint8Array): Promise<'declined' | undefined> {
  const { db, flags, screen, signal, confirm, note } = call
  if (!flags.isSet('yes')) {
    if (confirm === undefined) throw new UsageError('--prefix asks on a terminal: here, give --yes')
    // Of a snapshot below the oldest lock: the keys of running commits may come on top.
    const count = await db.count({ prefix, signal })
    if (!(await confirm(`Delete at least ${amount(count, 'key')} with the prefix "${shown(prefix)}"?`))) {
      note('nothing is deleted')
      await screen.answer({ deleted: 0 })
      return 'declined'
    }
  }
  let deleted = 0
  try {
    for (let more = true; more; ) {
      signal.throwIfAborted()
      const portion = await db.deleteRange({ prefix, limit: PORTION, signal })
      deleted += portion.deleted
      more = portion.more
    }
  } catch (error) {
    if (deleted > 0) note(`${amount(deleted, 'key')} were deleted`)
    throw error
  }
  return screen.answer({ deleted })
}
