import { expect, test } from 'vitest'
import { expectProblem, testServers } from '../support.js'

const start = testServers()

test('a server whose timestamps are late is alive and not ready, and says why', async () => {
  const server = await start()
  const { figures } = server.store
  const { oracle } = figures
  let late: string | undefined = 'no timestamps: saving their mark takes the disk 3 s'
  Object.defineProperty(figures, 'oracle', { get: () => ({ ...oracle, late }) })
  expect(expectProblem(await server.get('/readyz'), 'overloaded')['detail']).toBe(late)
  expect((await server.get('/livez')).statusCode).toBe(200)
  late = undefined
  expect((await server.get('/readyz')).statusCode).toBe(200)
})
