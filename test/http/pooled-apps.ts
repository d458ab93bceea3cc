import type { FastifyInstance } from 'fastify'
import type { Database } from '../../src/database/database.js'
import { type AppOptions, createApp } from '../../src/http/app.js'

/** Members that belong to one database, and which routes take out of it once. */
const LIVING = new Set<PropertyKey>([
  'store',
  'answers',
  'transactions',
  'observers',
  'leases',
  'changes',
  'consumers',
  'watches',
  'registry',
  'coordinator',
])

/** Stands for the object that `current` gives at the time of each call, and so do its members that live as long as it. */
function standIn<T extends object>(current: () => T): T {
  const members = new Map<PropertyKey, object>()
  return new Proxy({} as T, {
    get(_, name) {
      const object = current()
      const value: unknown = Reflect.get(object, name, object)
      if (typeof value === 'function') return value.bind(object)
      if (!LIVING.has(name) || typeof value !== 'object' || value === null) return value
      let member = members.get(name)
      if (member === undefined) {
        member = standIn(() => Reflect.get(current(), name, current()) as object)
        members.set(name, member)
      }
      return member
    },
    has: (_, name) => Reflect.has(current(), name),
  })
}

export interface PooledApp {
  readonly app: FastifyInstance
  /** The app serves this database from now on. */
  readonly bind: (database: Database) => void
}

const free: PooledApp[] = []

/** An app that has served other databases. To register all routes takes longer than most tests. */
export async function takeApp(options: AppOptions): Promise<PooledApp> {
  const taken = free.pop()
  if (taken !== undefined) {
    taken.bind(options.database)
    return taken
  }
  let current = options.database
  const app = await createApp({ ...options, database: standIn(() => current) })
  return { app, bind: (database) => (current = database) }
}

/** @param app without a connection and without a request in flight. */
export function giveBack(app: PooledApp): void {
  free.push(app)
}
