import { rm } from 'node:fs/promises'
import { afterAll } from 'vitest'
import { connectTo } from '../coordinator/support.js'
import { startServer } from '../http/support.js'
import { levelSuite } from './suite.js'

// The suite asks for a database while it names its tests.
const server = await startServer()
const db = await connectTo(server)
afterAll(async () => {
  await db.close()
  await server.close()
  await rm(server.directory, { recursive: true, force: true })
})

levelSuite(db)
