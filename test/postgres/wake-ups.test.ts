import { expect, test, vi } from 'vitest'
import { TEXT_BYTES_MAX } from '../../src/store/table/layout/broadcast.js'
import { Notifications } from '../../src/store/table/postgres/notifications.js'
import { openTable } from '../../src/store/table/postgres/postgres-table.js'
import { Sessions } from '../../src/store/table/postgres/sessions.js'
import { makeTable } from '../../src/store/table/postgres/table-admin.js'
import { FOR_EVER, wakeUpsSuite } from '../store/table/wake-ups-suite.js'
import { ownAddress } from './own-table.js'

const address = ownAddress()

const { watched } = wakeUpsSuite(async () => {
  await makeTable(address)
  return [await openTable(address, { patience: FOR_EVER }), await openTable(address, { patience: FOR_EVER })]
})

async function sessionsOf(body: (sessions: Sessions) => Promise<void>): Promise<void> {
  const sessions = await Sessions.open(address, { sessionsMax: 1 })
  try {
    await body(sessions)
  } finally {
    await sessions.close()
  }
}

test('connections that listen are made again when they are lost, and wake as before', async () => {
  const opened = vi.fn()
  const own = new Notifications(address)
  own.listen(() => {}, opened)
  await vi.waitFor(() => expect(opened).toHaveBeenCalledTimes(1))
  await sessionsOf(async (sessions) => {
    const [[table] = []] = await sessions.ask({ text: 'select $1::regclass::oid', values: [address.table] })
    const killed = await sessions.ask({
      text: 'select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() and query like $1',
      values: [`%perkv_${table}%`],
    })
    expect(killed).toEqual([['t'], ['t'], ['t']])
  })
  await vi.waitFor(() => expect(opened).toHaveBeenCalledTimes(2))
  await watched()
  await own.close()
  expect(own.isOpen).toBe(false)
})

test('the longest text arrives, and only at servers of the same table', async () => {
  const texts = ['?*', 'x'.repeat(TEXT_BYTES_MAX)]
  const elsewhere = ownAddress()
  await makeTable(elsewhere)
  const all = [address, address, elsewhere].map((each) => {
    const heard: string[] = []
    const notifications = new Notifications(each)
    notifications.listen(
      (one) => heard.push(one),
      () => {},
    )
    return { heard, notifications }
  })
  await vi.waitFor(() => expect(all.every(({ notifications }) => notifications.isOpen)).toBe(true))
  for (const one of texts) await all[0]?.notifications.send(one)
  await all[2]?.notifications.send('elsewhere')
  await vi.waitFor(() => {
    for (const { heard } of all.slice(0, 2)) expect(heard.filter((one) => texts.includes(one))).toEqual(texts)
    expect(all[2]?.heard).toEqual(['elsewhere'])
  })
  await Promise.all(all.map(({ notifications }) => notifications.close()))
})
