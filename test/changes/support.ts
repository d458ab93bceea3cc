import { Changes, type ChangesOptions } from '../../src/changes/changes.js'
import { Consumers } from '../../src/changes/consumers.js'
import type { FeedEvent, StreamRequest } from '../../src/changes/rules/changes-api.js'
import { LockResolver } from '../../src/coordinator/lock-resolver.js'
import { DEFAULT_LIMITS } from '../../src/limits.js'
import type { Store } from '../../src/store/store.js'
import { text } from '../store/support.js'

export const openChanges = (
  store: Store,
  limits: Partial<ChangesOptions['limits']> = {},
  options: Partial<ChangesOptions> = {},
): Changes => {
  const all = { ...DEFAULT_LIMITS, ...limits }
  const onError = (error: unknown): void => {
    throw error
  }
  const consumers = new Consumers(store, { limits: all, onError })
  return new Changes(store, { limits: all, consumers, resolver: new LockResolver(store), onError, ...options })
}

/** An event in short: `put a=1,delete b` of a transaction, `pair a=1`, `resolved`, `snapshot_end`. */
export function shortOf(event: FeedEvent): string {
  if (event.type === 'pair') return `pair ${text(event.key)}=${event.value === undefined ? '' : text(event.value)}`
  if (event.type !== 'txn') return event.type
  return event.changes
    .map(({ op, key, value, end, old }) => {
      const now = value === undefined ? '' : `=${text(value)}`
      const before = old === undefined ? '' : old === null ? ' (none)' : ` (${text(old.value)})`
      return `${op} ${text(key)}${now}${end === undefined ? '' : `..${text(end)}`}${before}`
    })
    .join(',')
}

/** The events of a stream up to its end. */
export async function allOf(changes: Changes, request: StreamRequest): Promise<FeedEvent[]> {
  const events: FeedEvent[] = []
  for await (const batch of changes.stream({ waitMs: 0, ...request })) events.push(...batch)
  return events
}

/** Without `resolved`, in short. */
export async function shortAll(changes: Changes, request: StreamRequest): Promise<string[]> {
  return (await allOf(changes, request)).filter(({ type }) => type !== 'resolved').map(shortOf)
}

/** Reads one stream event by event. */
export class Reader {
  readonly #batches: AsyncGenerator<readonly FeedEvent[], void>
  #events: FeedEvent[] = []

  constructor(changes: Changes, request: StreamRequest = {}) {
    this.#batches = changes.stream(request)
  }

  /** The next event; undefined at the end. */
  async next(): Promise<FeedEvent | undefined> {
    while (this.#events.length === 0) {
      const batch = await this.#batches.next()
      if (batch.done) return undefined
      this.#events = [...batch.value]
    }
    return this.#events.shift()
  }

  /** The next event that is not `resolved`, in short. */
  async short(): Promise<string | undefined> {
    for (;;) {
      const event = await this.next()
      if (event === undefined) return undefined
      if (event.type !== 'resolved') return shortOf(event)
    }
  }

  async end(): Promise<void> {
    await this.#batches.return()
  }
}
