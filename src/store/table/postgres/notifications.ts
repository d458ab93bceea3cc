import { Backoff } from '../../../coordinator/backoff.js'
import { sleep } from '../../../event-loop/sleep.js'
import type { Broadcast } from '../layout/broadcast.js'
import { UnusableTable } from '../layout/unusable-table.js'
import type { PostgresAddress } from './postgres-address.js'
import { kindOf, printFailure } from './postgres-failures.js'
import { ask, type PgClient } from './postgres-package.js'
import { Sessions } from './sessions.js'

/** So that looks cost less than without notifications, and a lost one costs a second or two at most. */
const PATIENCE = 4
const AGAIN_MS_MIN = 250
const AGAIN_MS_MAX = 30_000
/** The session's own notification comes with the answer to the statement that makes it. */
const OWN_MS_MAX = 1000

export interface NotificationsOptions {
  /** Called with one line when there are none to be had here, once. */
  readonly onWarning?: ((message: string) => void) | undefined
  /** For tests. */
  readonly patience?: number | undefined
}

/**
 * LISTEN and NOTIFY on a connection of their own, which is made again when it is lost. The channel is named after the table's
 * object id. A notification is a transaction of its own, which nobody waits for: commits of transactions that notify wait for each
 * other in PostgreSQL. Nothing is lost with it, so it need not be on disk.
 */
export class Notifications implements Broadcast {
  readonly patience: number
  readonly #address: PostgresAddress
  readonly #onWarning: (message: string) => void
  readonly #heard = new Set<(text: string) => void>()
  readonly #opened = new Set<() => void>()
  readonly #closed = new AbortController()
  #hasWarned = false
  #send: ((text: string) => Promise<void>) | undefined
  #running: Promise<void> | undefined

  constructor(address: PostgresAddress, { onWarning = () => {}, patience = PATIENCE }: NotificationsOptions = {}) {
    this.#address = address
    this.#onWarning = onWarning
    this.patience = patience
  }

  get isOpen(): boolean {
    return this.#send !== undefined
  }

  listen(heard: (text: string) => void, opened: () => void): void {
    this.#heard.add(heard)
    this.#opened.add(opened)
    this.#running ??= this.#run()
  }

  async send(text: string): Promise<void> {
    await this.#send?.(text)
  }

  async close(): Promise<void> {
    this.#closed.abort(new Error('the table is closed'))
    await this.#running
  }

  async #run(): Promise<void> {
    const { signal } = this.#closed
    const sessions = await Sessions.open(this.#address, { sessionsMax: 1 })
    for (let backoff = again(); !signal.aborted; ) {
      try {
        await sessions.with((client) =>
          this.#hold(client, () => {
            backoff = again()
            this.#hasWarned = false
          }),
        )
      } catch (error) {
        if (!signal.aborted && kindOf(error) === 'lasting') this.#warn(error)
      }
      await backoff.wait(undefined, signal).catch(() => {})
    }
    await sessions.close()
  }

  #warn(error: unknown): void {
    if (this.#hasWarned) return
    this.#hasWarned = true
    const why = `${this.#address.place}: no notifications are to be had (${printFailure(error)})`
    this.#onWarning(`${why}: this server looks now and then for what others have changed`)
  }

  /** Listens until the connection is lost, or closed. @throws what has ended it. */
  async #hold(client: PgClient, onOpen: () => void): Promise<never> {
    const { signal } = this.#closed
    const over = new AbortController()
    const end = AbortSignal.any([signal, over.signal])
    client.on('error', (error) => over.abort(error))
    client.on('end', () => over.abort(new Error('the connection has ended')))
    const [[table] = []] = await ask(client, { text: 'select $1::regclass::oid', values: [this.#address.table] })
    const channel = `perkv_${table}`
    await client.query({ text: `set synchronous_commit = off; listen ${channel}` })
    let hear = (): void => {}
    client.on('notification', ({ payload = '' }) => {
      if (payload === '') hear()
      else for (const heard of this.#heard) heard(payload)
    })
    const notify = async (text: string): Promise<void> => {
      await ask(client, { name: 'notify', text: `select pg_notify('${channel}', $1)`, values: [text] })
    }
    const isHeard = new Promise<true>((resolve) => (hear = () => resolve(true)))
    await notify('')
    if (!(await Promise.race([isHeard, sleep(OWN_MS_MAX, end)])))
      throw new UnusableTable('they do not arrive, as through a pooler of connections')
    end.throwIfAborted()
    this.#send = async (text) => {
      await notify(text).catch((error: unknown) => over.abort(error))
    }
    onOpen()
    for (const opened of this.#opened) opened()
    try {
      return await new Promise<never>((_, reject) => end.addEventListener('abort', () => reject(end.reason)))
    } finally {
      this.#send = undefined
    }
  }
}

function again(): Backoff {
  return new Backoff(AGAIN_MS_MIN, AGAIN_MS_MAX)
}
