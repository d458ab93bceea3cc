import { UsageError } from '../../server/flags.js'
import { leaseNameOf } from './arguments.js'
import { clientCommand } from './client-command.js'
import { shownText } from './shown.js'

export const leases = clientCommand({
  operands: ['[NAME]'],
  flags: { prefix: { value: 'TEXT', help: 'leases whose names begin with it', variable: false } },
  about: 'Prints who holds which lease, or who holds one of them.',
  example: `$ perkv leases --prefix jobs/ | jq -c '[.name, .holder, .fence]'
["jobs/report","worker-7",3677245337305088]`,

  async run({ db, flags, screen }) {
    const name = leaseNameOf(flags.positionals[0])
    const prefix = flags.optional('prefix')?.text
    if (name !== undefined && prefix !== undefined) throw new UsageError('--prefix does not go with NAME')
    const held = name === undefined ? await db.leases.list({ prefix }) : [await db.leases.get(name)]
    await screen.list(
      held,
      ['name', 'fence', 'ttl_ms', 'expires_at', 'holder'],
      ({ name, fence, ttlMs, expiresAt, holder }) => {
        return [shownText(name), String(fence), String(ttlMs), expiresAt.toISOString(), shownText(holder)]
      },
    )
    return undefined
  },
})
