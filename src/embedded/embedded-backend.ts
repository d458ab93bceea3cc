import type { ChangesApi } from '../changes/rules/changes-api.js'
import type { DbBackend } from '../client/db-backend.js'
import type { Database } from '../database/database.js'
import { KvError } from '../errors/kv-error.js'
import { addTimeLeft } from '../errors/lock-detail.js'
import { errorRow } from '../errors/registry.js'
import type { LeasesApi } from '../leases/rules/leases-api.js'
import type { ObserversApi } from '../observers/rules/observers-api.js'
import type { Timestamp } from '../timestamp.js'
import { EmbeddedAutocommit } from './embedded-autocommit.js'
import { EmbeddedCoordinator } from './embedded-coordinator.js'
import { LimitedApi, type PairLimits } from './limited-api.js'

export class EmbeddedBackend implements DbBackend {
  readonly name = 'this database'
  readonly autocommit: EmbeddedAutocommit
  readonly coordinator: EmbeddedCoordinator
  readonly observers: ObserversApi
  readonly changes: ChangesApi
  readonly leases: LeasesApi
  readonly database: Database
  readonly #onClosed: () => void
  #inFlight = 0
  #onIdle: () => void = () => {}
  #isClosed = false
  #closing: Promise<void> | undefined

  constructor(database: Database, limits: PairLimits, onClosed: () => void) {
    this.database = database
    this.#onClosed = onClosed
    this.observers = database.observers
    this.changes = database.changes
    this.leases = database.leases
    this.autocommit = new EmbeddedAutocommit(database, limits)
    this.coordinator = new EmbeddedCoordinator(new LimitedApi(database, limits), database.store.traits)
  }

  readonly during = async <T>(call: () => Promise<T>): Promise<T> => {
    if (this.#isClosed) throw new TypeError(`${this.name} is closed`)
    this.#inFlight++
    try {
      return await call()
    } catch (error) {
      addTimeLeft(error, () => this.database.store.now())
      throw error
    } finally {
      if (--this.#inFlight === 0) this.#onIdle()
    }
  }

  isAway(error: unknown): boolean {
    return error instanceof KvError && errorRow(error.code).status === 503
  }

  readTs(): Timestamp | Promise<Timestamp> {
    return this.database.store.readTs()
  }

  close(): Promise<void> {
    this.#closing ??= this.#close()
    return this.#closing
  }

  async #close(): Promise<void> {
    while (this.#inFlight > 0)
      await new Promise<void>((resolve) => {
        this.#onIdle = resolve
      })
    this.#isClosed = true
    try {
      await this.coordinator.close()
      await this.database.close()
    } finally {
      this.#onClosed()
    }
  }
}
