import { UsageError } from '../../server/flags.js'
import { leaseNameOf } from './arguments.js'
import { clientCommand } from './client-command.js'
import { shownText } from './shown.js'

export const leases = clientCommand({
  operands: ['[NAME]'],
  flags: { prefix: { value: 'TEXT', help: 'leases whose names begin with it', variable: false } },
  about: 'Prints who holds which lease, or who holds one of them.',
  example: `$ perkv leases --prefix jobs/ | jq -c '.leases[] | [.name, .holder, .fence]'
["jobs/report","worker-7",3677245337305088]`,

  async run({ db, flags, screen }) {
    const name = leaseNameOf(flags.positionals[0])
    const prefix = flags.optional('prefix')?.text
    if (name !== undefined && prefix !== undefined) throw new UsageError('--prefix does not go with NAME')
    const one = name === undefined ? undefined : await db.leases.get(name)
    const held = one === undefined ? await db.leases.list({ prefix }) : [one]
    if (screen.form === 'lines') {
      await screen.line(one ?? { leases: held })
      return undefined
    }
    const table = screen.table(['name', 'fence', 'ttl_ms', 'expires_at', 'holder'])
    for (const { name, fence, ttlMs, expiresAt, holder } of held)
      await screen.write(
        table.add([shownText(name), String(fence), String(ttlMs), expiresAt.toISOString(), shownText(holder)]),
      )
    await screen.write(table.end())
    return undefined
  },
})
