import { expect, test, vi } from 'vitest'
import { TEXT_BYTES_MAX } from '../../src/store/table/layout/broadcast.js'
import type { Table } from '../../src/store/table/layout/table.js'
import { Notifications } from '../../src/store/table/postgres/notifications.js'
import { openTable } from '../../src/store/table/postgres/postgres-table.js'
import { Sessions } from '../../src/store/table/postgres/sessions.js'
import { makeTable } from '../../src/store/table/postgres/table-admin.js'
import { FOR_EVER, wakeUpsSuite } from '../store/table/wake-ups-suite.js'
import { CuttingProxy } from './cutting-proxy.js'
import { ownAddress } from './own-table.js'

const address = ownAddress()

const tables: Table[] = []

const { watched } = wakeUpsSuite(async () => {
  await makeTable(address)
  const open = () => openTable(address, { patience: FOR_EVER })
  const both = [await open(), await open()] as const
  tables.push(...both)
  return both
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
  const opened = tables.map(({ broadcast }) => {
    const opens = vi.fn()
    broadcast?.listen(() => {}, opens)
    return opens
  })
  await sessionsOf(async (sessions) => {
    const [[table] = []] = await sessions.ask({ text: 'select $1::regclass::oid', values: [address.table] })
    const [[began] = []] = await sessions.ask({ text: 'select clock_timestamp()::text', values: [] })
    const killThoseBefore = {
      text: `select pg_terminate_backend(pid) from pg_stat_activity
        where pid <> pg_backend_pid() and datname = current_database() and query ~ $1 and backend_start < $2::timestamptz`,
      values: [`perkv_${table}\\M`, `${began}`],
    }
    await vi.waitFor(async () => {
      await sessions.ask(killThoseBefore)
      for (const opens of opened) expect(opens).toHaveBeenCalled()
    })
  })
  await vi.waitFor(() => expect(tables.map(({ broadcast }) => broadcast?.isOpen)).toEqual([true, true]))
  await watched()
})

/** Of the answers of a pooler of connections, which does not know who listens. */
function withoutNotifications(): (bytes: Buffer) => Buffer {
  let left: Buffer = Buffer.alloc(0)
  return (bytes) => {
    left = Buffer.concat([left, bytes])
    const passed: Buffer[] = []
    while (left.length >= 5) {
      const length = 1 + left.readInt32BE(1)
      if (left.length < length) break
      if (left.toString('latin1', 0, 1) !== 'A') passed.push(left.subarray(0, length))
      left = left.subarray(length)
    }
    return Buffer.concat(passed)
  }
}

test('where notifications do not arrive a server says so once, and tries again in silence', async () => {
  const { host, port } = new URL(address.connection)
  const proxy = await CuttingProxy.start(Number(port))
  let connections = 0
  let arePassed = false
  proxy.passing = () => {
    connections++
    return arePassed ? (bytes) => bytes : withoutNotifications()
  }
  const warnings: string[] = []
  const notifications = new Notifications(
    { ...address, connection: address.connection.replace(host, `127.0.0.1:${proxy.port}`) },
    { onWarning: (message) => warnings.push(message) },
  )
  notifications.listen(
    () => {},
    () => {},
  )
  await vi.waitFor(() => expect(warnings).toHaveLength(1))
  const before = connections
  await vi.waitFor(() => expect(connections).toBeGreaterThan(before))
  arePassed = true
  await vi.waitFor(() => expect(notifications.isOpen).toBe(true))
  expect(warnings).toEqual([expect.stringContaining('they do not arrive, as through a pooler')])
  await notifications.close()
  proxy.close()
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
