import { deserialize, serialize } from 'node:v8'
import { createStorage } from 'unstorage'
import denoKvNode from 'unstorage/drivers/deno-kv-node'
import { expect, test } from 'vitest'
import { testServers } from '../support.js'

const start = testServers()

/** The driver by which Nitro and Nuxt have their storage. */
test('a storage of unstorage', async () => {
  const server = await start({ kvConnect: true })
  const path = `http://127.0.0.1:${await server.listen()}/kv-connect/nuxt`
  const openKvOptions = { accessToken: 'a-token-of-any-kind', encodeV8: serialize, decodeV8: deserialize }
  const storage = createStorage({ driver: denoKvNode({ path, openKvOptions, base: 'app' }) })
  expect(await storage.getItem('a:b')).toBeNull()
  expect(await storage.hasItem('a:b')).toBe(false)
  await storage.setItem('a:b', { n: 1 })
  await storage.setItem('a:c', 'text')
  await storage.setItemRaw('raw', new Uint8Array([1, 2]))
  expect(await storage.getItem('a:b')).toEqual({ n: 1 })
  expect(await storage.hasItem('a:c')).toBe(true)
  expect(await storage.getItemRaw('raw')).toEqual(new Uint8Array([1, 2]))
  expect(await storage.getKeys()).toEqual(['a:b', 'a:c', 'raw'])
  expect(await storage.getKeys('a')).toEqual(['a:b', 'a:c'])
  await storage.setItem('soon', 1, { ttl: 0.05 })
  await expect.poll(() => storage.getItem('soon')).toBeNull()
  await storage.removeItem('a:b')
  expect(await storage.getKeys('a')).toEqual(['a:c'])
  const { pairs } = (await server.get('/v1/kv?prefix=kv-connect/nuxt/')).json<{ pairs: unknown[] }>()
  expect(pairs).toHaveLength(2)
  await storage.clear()
  expect(await storage.getKeys()).toEqual([])
  await storage.dispose()
})
