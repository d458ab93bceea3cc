import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach } from 'vitest'
import { Db } from '../../src/client/db.js'
import { openBackend } from '../../src/embedded/open.js'
import type { LockInfo } from '../../src/errors/lock-info.js'
import type { Store } from '../../src/store/store.js'
import { connectTo } from '../coordinator/support.js'
import { startServer } from '../http/support.js'

export interface TestDb {
  readonly db: Db
  /** Beneath it. */
  readonly store: Store
  /** Another one on the same data. */
  another(): Promise<Db>
  /** Once nothing goes on any more. */
  locksLeft(): Promise<readonly LockInfo[]>
}

export interface TestDbOptions {
  readonly lockWaitMs?: number
  readonly keyBytesMax?: number
  readonly valueBytesMax?: number
}

interface Opened extends TestDb {
  end(): Promise<void>
}

const ALL = { maxTs: Number.MAX_SAFE_INTEGER }

async function overHttp({ lockWaitMs, ...limits }: TestDbOptions): Promise<Opened> {
  const server = await startServer({ limits })
  const { store, directory } = server
  const db = await connectTo(server, { lockWaitMs })
  const others: Db[] = []
  return {
    db,
    store,
    async another() {
      const other = await connectTo(server)
      others.push(other)
      return other
    },
    async locksLeft() {
      await db.close()
      return (await store.scanLock(ALL)).locks
    },
    async end() {
      for (const one of [db, ...others]) await one.close() // Else heart beats look for the server for long.
      await server.close()
      await rm(directory, { recursive: true, force: true })
    },
  }
}

async function embedded(options: TestDbOptions): Promise<Opened> {
  const directory = await mkdtemp(join(tmpdir(), 'perkv-embedded-'))
  return openedIn(directory, options, () => rm(directory, { recursive: true, force: true }))
}

async function openedIn(
  directory: string,
  { lockWaitMs, ...limits }: TestDbOptions,
  cleanUp: () => Promise<void>,
): Promise<Opened> {
  const backend = await openBackend(directory, { durability: 'async', ...limits })
  const { store } = backend.database
  const db = new Db(backend, lockWaitMs)
  return {
    db,
    store,
    another: async () => new Db(backend),
    async locksLeft() {
      await backend.coordinator.idle()
      return (await store.scanLock(ALL)).locks
    },
    async end() {
      await db.close()
      await cleanUp()
    },
  }
}

/** Where a `Db` may have its data: it is the same one. */
export const BACKENDS = [
  { backend: 'over HTTP', openDb: overHttp },
  { backend: 'embedded', openDb: embedded },
  { backend: 'in memory', openDb: (options: TestDbOptions) => openedIn(':memory:', options, async () => {}) },
] as const

/** Databases that go away after each test. */
export function testDbs(openDb: (typeof BACKENDS)[number]['openDb']): (options?: TestDbOptions) => Promise<TestDb> {
  const opened: Opened[] = []
  afterEach(async () => {
    for (const one of opened.splice(0)) await one.end()
  })
  return async (options = {}) => {
    const one = await openDb(options)
    opened.push(one)
    return one
  }
}
