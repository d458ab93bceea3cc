import { join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { Receiver } from '../http/receiver.js'
import { killAll, type ServerProcess, startProcess, withTempDir } from './server-process.js'

/** Puts between two kills. */
const PUTS = 40
const KILLS = 3

afterAll(killAll)

async function send(method: string, url: string, body: string): Promise<Record<string, unknown>> {
  const answer = await fetch(url, { method, body, headers: { 'content-type': 'application/json' } })
  expect(answer.ok, await answer.clone().text()).toBe(true)
  return (await answer.json()) as Record<string, unknown>
}

test('over kill -9 of the server every transaction arrives, and first in its order', { timeout: 120_000 }, async () => {
  const receiver = new Receiver()
  const target = await receiver.listen()
  let requests = 0
  receiver.answers = (response) => {
    requests++
    if (requests % 5 === 0) response.destroy()
    else if (requests % 7 === 0) response.writeHead(500).end()
    else response.writeHead(200).end()
  }
  await withTempDir(async (directory) => {
    const data = join(directory, 'data')
    const flags = ['--webhook-targets', target]
    let server: ServerProcess = await startProcess(data, flags)
    const hook = { url: target, prefix: 'a/', backoff_ms: 5, backoff_max_ms: 20, max_attempts: 0, batch: 4 }
    await send('PUT', `${server.url}/v1/webhooks/hook`, JSON.stringify(hook))
    const committed: number[] = []
    for (let life = 0; life <= KILLS; life++) {
      for (let i = 0; i < PUTS; i++) {
        const { commit_ts } = await send('PUT', `${server.url}/v1/kv/a%2F${life}-${i}`, 'x')
        committed.push(Number(commit_ts))
      }
      if (life === KILLS) break
      const before = receiver.all.length
      await expect.poll(() => receiver.all.length).toBeGreaterThan(before) // It dies while it delivers.
      await server.stop('SIGKILL')
      server = await startProcess(data, flags)
    }
    await expect.poll(() => receiver.commits.at(-1), { timeout: 60_000 }).toBe(committed.at(-1))
    expect([...new Set(receiver.commits)]).toEqual(committed)
    await server.stop('SIGTERM')
  })
  await receiver.close()
})
