import type { DbHome } from '../client/db-home.js'
import type { Database } from '../database/database.js'
import type { Timestamp } from '../timestamp.js'
import { DatabaseCalls } from './database-calls.js'
import { OpenTransactions } from './open-transactions.js'
import { type PairLimits, WithinLimits } from './within-limits.js'

/** A database in this process, as the home of a `Db`. */
export class EmbeddedHome implements DbHome {
  readonly name = 'this database'
  readonly autocommit: DatabaseCalls
  readonly coordinator: OpenTransactions
  readonly database: Database
  readonly #onClosed: () => void
  #inFlight = 0
  #onIdle: () => void = () => {}
  #isClosed = false
  #closing: Promise<void> | undefined

  constructor(database: Database, limits: PairLimits, onClosed: () => void) {
    this.database = database
    this.#onClosed = onClosed
    this.autocommit = new DatabaseCalls(database, limits)
    this.coordinator = new OpenTransactions(new WithinLimits(database.store, limits), database.store.capabilities)
  }

  readonly during = async <T>(call: () => Promise<T>): Promise<T> => {
    if (this.#isClosed) throw new TypeError(`${this.name} is closed`)
    this.#inFlight++
    try {
      return await call()
    } finally {
      if (--this.#inFlight === 0) this.#onIdle()
    }
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
