import { afterAll, expect, test } from 'vitest'
import { killAll, runCli, startProcess } from '../process/server-process.js'
import { noSmallDisk, withSmallDisk } from '../process/small-disk.js'
import { PostgresServer } from './server.mjs'

afterAll(killAll)

const LONG = 'x'.repeat(1_000_000)

if (noSmallDisk !== undefined) console.warn(`PostgreSQL on a full disk is NOT tested: ${noSmallDisk}`)

test.skipIf(noSmallDisk !== undefined)(
  'a full disk refuses writes, serves reads, and takes writes again once there is room',
  () =>
    withSmallDisk(256, async (disk) => {
      const postgres = await PostgresServer.start([], disk.path)
      try {
        const address = postgres.url()
        expect(await runCli(['store', 'init', address])).toMatchObject({ code: 0 })
        const server = await startProcess('-', ['--store', address, '--log-level', 'fatal'])
        const put = async (key: string, body: string): Promise<unknown> => {
          const response = await fetch(`${server.url}/v1/kv/${key}`, { method: 'PUT', body })
          const { code = response.status, detail } = (await response.json()) as { code?: string; detail?: string }
          return { code, detail }
        }
        const acknowledged: string[] = []
        expect(await put('first', LONG)).toMatchObject({ code: 200 })
        await disk.fill(128 * 1024)
        let refused: { code?: unknown } = { code: 200 }
        let lastKey = ''
        for (let i = 0; refused.code === 200; i++) {
          lastKey = `long ${i}`
          refused = (await put(lastKey, LONG)) as { code?: unknown }
          if (refused.code === 200) acknowledged.push(lastKey)
        }
        // Also where the short record that rolls it back still finds room.
        expect(refused).toMatchObject({
          code: 'storage_unavailable',
          detail: expect.stringContaining('No space left on device'),
        })
        expect((await fetch(`${server.url}/v1/kv/${lastKey}`)).status).toBe(404)
        const first = await fetch(`${server.url}/v1/kv/first`)
        expect(await first.text()).toBe(LONG)
        await disk.free()
        await expect.poll(async () => put('last', LONG)).toMatchObject({ code: 200 })
        for (const key of acknowledged) expect((await fetch(`${server.url}/v1/kv/${key}`)).status).toBe(200)
        expect(await runCli(['store', 'check', address])).toMatchObject({ code: 0 })
        await server.stop('SIGTERM')
      } finally {
        await postgres.end()
      }
    }),
)
