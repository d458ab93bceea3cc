import { expect, test, vi } from 'vitest'
import { parsePostgresAddress } from '../../../../src/store/table/postgres/postgres-address.js'
import { Sessions } from '../../../../src/store/table/postgres/sessions.js'

/** Older pools know no `onConnect`, and ignore it. */
class OldPool {
  readonly connect = async () => ({ release: () => {}, query: async () => ({ rows: [] }) })
  readonly on = (): this => this
  readonly end = async (): Promise<void> => {}
}

vi.mock('../../../../src/store/table/postgres/postgres-package.js', async (original) => ({
  ...(await original<object>()),
  loadPool: async () => OldPool,
}))

test('a client of PostgreSQL that leaves new connections as they are is refused', async () => {
  const sessions = await Sessions.open(parsePostgresAddress('postgres://me@localhost/db'), { sessionsMax: 1 })
  await expect(sessions.ask({ text: 'select 1' })).rejects.toThrow('the installed pg is too old')
})

test('what may be a password with bare special characters is not taken for a place', () => {
  for (const address of ['postgres://me:12/secret@host/db', 'postgres://me:12#secret@host/db']) {
    expect(() => parsePostgresAddress(address)).toThrow('is wrong')
    expect(() => parsePostgresAddress(address)).not.toThrow('secret')
  }
})
