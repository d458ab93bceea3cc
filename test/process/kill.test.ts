import { afterAll, expect, test } from 'vitest'
import { killAll, startProcess, withTempDir } from './server-process.js'

afterAll(killAll)

const KILLS = 4
const ACCOUNTS = 8
const START_BALANCE = 100

async function post<T>(url: string, path: string, body: unknown): Promise<{ status: number; body: T }> {
  const answer = await fetch(`${url}${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  })
  return { status: answer.status, body: (await answer.json()) as T }
}

/** Until the server is killed under it: what was acknowledged, in order. */
async function untilKilled(step: (i: number) => Promise<void>): Promise<void> {
  for (let i = 0; ; i++) {
    try {
      await step(i)
    } catch (error) {
      if (error instanceof TypeError) return // fetch's "the connection is gone".
      throw error
    }
  }
}

/**
 * A real process under three kinds of load, killed with SIGKILL over and over on one data directory: autocommit puts,
 * one-shot transfers between accounts, and client-coordinated transactions that the kill cuts anywhere between prewrite
 * and the commit of the secondary.
 */
test('kill -9: acknowledged commits are there, half-done transactions are all or nothing', () =>
  withTempDir(async (data) => {
    const acknowledged = new Map<string, string>()
    /** Client-coordinated transactions: the pair of keys, and whether the primary's commit was acknowledged. */
    const pairs: { keys: [string, string]; isCommitted: boolean }[] = []
    let server = await startProcess(data)
    for (let i = 0; i < ACCOUNTS; i++)
      await fetch(`${server.url}/v1/kv/account/${i}`, { method: 'PUT', body: String(START_BALANCE) })

    for (let kill = 0; kill < KILLS; kill++) {
      const { url } = server
      let answers = 0
      let enough: () => void = () => {}
      const isLoaded = new Promise<void>((resolve) => {
        enough = resolve
      })
      const counted = (): void => {
        if (++answers === 300 + kill * 50) enough()
      }
      const puts = untilKilled(async (i) => {
        const key = `put/${kill}/${i}`
        const answer = await fetch(`${url}/v1/kv/${key}`, { method: 'PUT', body: `value ${i}` })
        if (answer.status === 200) acknowledged.set(key, `value ${i}`)
        counted()
      })
      const transfers = [1, 2, 3].map((by) =>
        untilKilled(async (i) => {
          const from = `account/${(i * 3 + by) % ACCOUNTS}`
          const to = `account/${(i * 5 + 2 * by + 1) % ACCOUNTS}`
          if (from === to) return
          const ops = [
            { op: 'increment', key: from, by: -by },
            { op: 'increment', key: to, by },
          ]
          await post(url, '/v1/txn', { ops })
          counted()
        }),
      )
      const clients = [0, 1].map((client) =>
        untilKilled(async (i) => {
          const keys: [string, string] = [`pair/${kill}/${client}/${i}/a`, `pair/${kill}/${client}/${i}/b`]
          const pair = { keys, isCommitted: false }
          pairs.push(pair)
          const start_ts = (await post<{ ts: number }>(url, '/v1/percolator/tso', {})).body.ts
          const mutations = keys.map((key) => ({ op: 'put', key, value: key.padEnd(client * 400, '.') }))
          await post(url, '/v1/percolator/prewrite', { mutations, primary: keys[0], start_ts, lock_ttl: 1 })
          const commit_ts = (await post<{ ts: number }>(url, '/v1/percolator/tso', {})).body.ts
          const commit = (key: string) => post(url, '/v1/percolator/commit', { keys: [key], start_ts, commit_ts })
          pair.isCommitted = (await commit(keys[0])).status === 200
          counted()
          if (i % 3 !== 0) await commit(keys[1])
        }),
      )
      await isLoaded
      await server.stop('SIGKILL')
      await Promise.all([puts, ...transfers, ...clients])
      server = await startProcess(data)

      for (const [key, value] of acknowledged) {
        const answer = await fetch(`${server.url}/v1/kv/${key}`)
        expect([key, await answer.text()]).toEqual([key, value])
      }
      const accounts = await fetch(`${server.url}/v1/kv?prefix=account/`)
      const { pairs: balances } = (await accounts.json()) as { pairs: { value: string }[] }
      expect(balances.reduce((total, { value }) => total + Number(value), 0)).toBe(ACCOUNTS * START_BALANCE)
      for (const { keys, isCommitted } of pairs) {
        const found = await Promise.all(keys.map(async (key) => (await fetch(`${server.url}/v1/kv/${key}`)).status))
        expect(found[0], keys[0]).toBe(found[1])
        if (isCommitted) expect(found[0], keys[0]).toBe(200)
      }
    }
    expect(acknowledged.size).toBeGreaterThan(0)
    expect(pairs.some(({ isCommitted }) => isCommitted)).toBe(true)
    await server.stop('SIGTERM')
  }))
