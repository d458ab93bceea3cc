import { signalOf } from '../../event-loop/lazy-signal.js'
import type {
  ClaimName,
  ClaimRequest,
  Notification,
  ObserverState,
  ObserversApi,
  Parked,
  Registration,
  Release,
} from '../../observers/rules/observers-api.js'
import type { Timestamp } from '../../timestamp.js'
import { ANYTHING, BYTES, INTEGER, listOf, optional, record, type Shape, TEXT } from './answer-shape.js'
import { HttpRegistry, rangeOfWire, WIRE_RANGE, type WireRange } from './http-registry.js'
import type { HttpRequest, HttpTransport } from './http-transport.js'

/** The server's observer, with names in camelCase. */
interface WireState extends Omit<ObserverState, 'range' | 'workers'>, WireRange {
  readonly workers: readonly { readonly worker: string; readonly claimed: number; readonly seenAt: string }[]
}

type WireParked = Omit<Parked, 'parkedAtMs'> & { readonly parkedAt: string }

const STATE = record({
  ...WIRE_RANGE,
  name: TEXT,
  state: TEXT,
  pending: INTEGER,
  parked: INTEGER,
  lagMs: INTEGER,
  workers: listOf(record({ worker: TEXT, claimed: INTEGER, seenAt: TEXT })),
})
const CLAIM = { key: BYTES, fence: INTEGER }
const CLAIMED = record({
  notifications: listOf(
    record({ ...CLAIM, commitTs: INTEGER, attempt: INTEGER, value: optional(BYTES), old: optional(BYTES) }),
  ),
})
const PARKED = record({
  parked: listOf(record({ key: BYTES, commitTs: INTEGER, attempts: INTEGER, error: TEXT, parkedAt: TEXT })),
  cursor: optional(TEXT),
})

export class HttpObservers implements ObserversApi {
  readonly #registry: HttpRegistry

  constructor(transport: HttpTransport) {
    this.#registry = new HttpRegistry(transport, '/v1/observers')
  }

  async put(name: string, { range, ...options }: Registration): Promise<{ state: ObserverState; isNew: boolean }> {
    const { status, message } = await this.#registry.send<WireState>('PUT', this.#registry.pathOf(name), STATE, {
      ...range,
      ...options,
    })
    return { state: stateOf(message), isNew: status === 201 }
  }

  async get(name: string): Promise<ObserverState> {
    return stateOf((await this.#registry.send<WireState>('GET', this.#registry.pathOf(name), STATE)).message)
  }

  async list(): Promise<ObserverState[]> {
    return (await this.#registry.list<WireState>('observers', STATE)).map(stateOf)
  }

  async remove(name: string): Promise<void> {
    await this.#registry.send('DELETE', this.#registry.pathOf(name), ANYTHING)
  }

  async claim(name: string, { signal: late, ...request }: ClaimRequest): Promise<Notification[]> {
    const signal = signalOf(late)
    try {
      const rest = { waitMs: request.waitMs, signal }
      return (await this.#post<{ notifications: Notification[] }>(name, 'claim', CLAIMED, request, rest)).notifications
    } catch (error) {
      if (signal?.aborted) return []
      throw error
    }
  }

  async extend(name: string, claims: readonly ClaimName[], leaseMs?: number): Promise<ClaimName[]> {
    return (
      await this.#post<{ lost: ClaimName[] }>(name, 'extend', record({ lost: listOf(record(CLAIM)) }), {
        claims: claims.map(claimName),
        leaseMs,
      })
    ).lost
  }

  release(name: string, claims: readonly Release[]): Promise<{ released: number; parked: Uint8Array[] }> {
    const releases = claims.map(({ key, fence, error, retryAfterMs }) => ({ key, fence, error, retryAfterMs }))
    return this.#post(name, 'release', record({ released: INTEGER, parked: listOf(BYTES) }), { claims: releases })
  }

  notify(name: string, keys: readonly Uint8Array[]): Promise<{ notified: number; ts: Timestamp }> {
    return this.#post(name, 'notify', record({ notified: INTEGER, ts: INTEGER }), { keys })
  }

  async backfill(name: string): Promise<ObserverState> {
    return stateOf(await this.#post<WireState>(name, 'backfill', STATE, {}))
  }

  async pause(name: string): Promise<ObserverState> {
    return stateOf(await this.#post<WireState>(name, 'pause', STATE, {}))
  }

  async resume(name: string): Promise<ObserverState> {
    return stateOf(await this.#post<WireState>(name, 'resume', STATE, {}))
  }

  /** `next` and `after` are the bytes of the server's cursor. */
  async parked(
    name: string,
    { limit, after }: { readonly limit: number; readonly after?: Uint8Array | undefined },
  ): Promise<{ parked: Parked[]; next?: Uint8Array }> {
    const cursor = after === undefined ? '' : `&cursor=${encodeURIComponent(decoder.decode(after))}`
    const path = `${this.#registry.pathOf(name)}/parked?limit=${limit}${cursor}`
    const { message } = await this.#registry.send<{ parked: readonly WireParked[]; cursor?: string }>(
      'GET',
      path,
      PARKED,
    )
    const parked = message.parked.map(({ parkedAt, ...cell }) => ({ ...cell, parkedAtMs: Date.parse(parkedAt) }))
    return { parked, ...(message.cursor === undefined ? {} : { next: encoder.encode(message.cursor) }) }
  }

  async retry(name: string, keys?: readonly Uint8Array[]): Promise<number> {
    return (await this.#post<{ retried: number }>(name, 'retry', record({ retried: INTEGER }), { keys })).retried
  }

  async skip(name: string, keys: readonly Uint8Array[]): Promise<number> {
    return (await this.#post<{ skipped: number }>(name, 'skip', record({ skipped: INTEGER }), { keys })).skipped
  }

  async #post<T>(
    name: string,
    call: string,
    shape: Shape,
    message: object,
    rest: Partial<HttpRequest> = {},
  ): Promise<T> {
    return (await this.#registry.send<T>('POST', `${this.#registry.pathOf(name)}/${call}`, shape, message, rest))
      .message
  }
}

const encoder = new TextEncoder()
const decoder = new TextDecoder()

/** Leaves out the other fields of a notification, which may be passed as a claim. */
function claimName({ key, fence }: ClaimName): ClaimName {
  return { key, fence }
}

function stateOf({ prefix, start, end, workers, ...state }: WireState): ObserverState {
  return {
    ...state,
    range: rangeOfWire({ prefix, start, end }),
    workers: workers.map(({ worker, claimed, seenAt }) => ({ worker, claimed, seenAtMs: Date.parse(seenAt) })),
  }
}
