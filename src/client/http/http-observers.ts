import { signalOf } from '../../event-loop/late-signal.js'
import type { GivenRange } from '../../percolator/given-range.js'
import type {
  ClaimName,
  ClaimRequest,
  Notification,
  ObserverState,
  ObserversApi,
  Parked,
  Registration,
  Release,
} from '../../percolator/observers-api.js'
import type { Timestamp } from '../../timestamp.js'
import { messageOf } from './http-api.js'
import { encodeMessage, MSGPACK } from './http-message.js'
import type { HttpRequest, HttpTransport } from './http-transport.js'

/** An observer as the server shows it, with names in camelCase. */
interface WireState extends Omit<ObserverState, 'range' | 'workers'> {
  readonly prefix?: Uint8Array
  readonly start?: Uint8Array
  readonly end?: Uint8Array
  readonly workers: readonly { readonly worker: string; readonly claimed: number; readonly seenAt: string }[]
}

type WireParked = Omit<Parked, 'parkedAtMs'> & { readonly parkedAt: string }

interface Answered<T> {
  readonly status: number
  readonly message: T
}

/** The calls of observers over HTTP: `/v1/observers`. */
export class HttpObservers implements ObserversApi {
  readonly #transport: HttpTransport

  constructor(transport: HttpTransport) {
    this.#transport = transport
  }

  async put(name: string, { range, ...options }: Registration): Promise<{ state: ObserverState; isNew: boolean }> {
    const { status, message } = await this.#send<WireState>('PUT', pathOf(name), { ...range, ...options })
    return { state: stateOf(message), isNew: status === 201 }
  }

  async get(name: string): Promise<ObserverState> {
    return stateOf((await this.#send<WireState>('GET', pathOf(name))).message)
  }

  async list(): Promise<ObserverState[]> {
    const { message } = await this.#send<{ observers: readonly WireState[] }>('GET', OBSERVERS)
    return message.observers.map(stateOf)
  }

  async remove(name: string): Promise<void> {
    await this.#send('DELETE', pathOf(name))
  }

  async claim(name: string, { signal: late, ...request }: ClaimRequest): Promise<Notification[]> {
    const signal = signalOf(late)
    try {
      const rest = { waitMs: request.waitMs, signal }
      return (await this.#post<{ notifications: Notification[] }>(name, 'claim', request, rest)).notifications
    } catch (error) {
      if (signal?.aborted) return []
      throw error
    }
  }

  async extend(name: string, claims: readonly ClaimName[], leaseMs?: number): Promise<ClaimName[]> {
    return (await this.#post<{ lost: ClaimName[] }>(name, 'extend', { claims: claims.map(nameOf), leaseMs })).lost
  }

  release(name: string, claims: readonly Release[]): Promise<{ released: number; parked: Uint8Array[] }> {
    const releases = claims.map(({ key, fence, error, retryAfterMs }) => ({ key, fence, error, retryAfterMs }))
    return this.#post(name, 'release', { claims: releases })
  }

  notify(name: string, keys: readonly Uint8Array[]): Promise<{ notified: number; ts: Timestamp }> {
    return this.#post(name, 'notify', { keys })
  }

  async backfill(name: string): Promise<ObserverState> {
    return stateOf(await this.#post<WireState>(name, 'backfill', {}))
  }

  async pause(name: string): Promise<ObserverState> {
    return stateOf(await this.#post<WireState>(name, 'pause', {}))
  }

  async resume(name: string): Promise<ObserverState> {
    return stateOf(await this.#post<WireState>(name, 'resume', {}))
  }

  /** `next` and `after` are the bytes of the server's cursor. */
  async parked(
    name: string,
    { limit, after }: { readonly limit: number; readonly after?: Uint8Array | undefined },
  ): Promise<{ parked: Parked[]; next?: Uint8Array }> {
    const cursor = after === undefined ? '' : `&cursor=${encodeURIComponent(decoder.decode(after))}`
    const path = `${pathOf(name)}/parked?limit=${limit}${cursor}`
    const { message } = await this.#send<{ parked: readonly WireParked[]; cursor?: string }>('GET', path)
    const parked = message.parked.map(({ parkedAt, ...cell }) => ({ ...cell, parkedAtMs: Date.parse(parkedAt) }))
    return { parked, ...(message.cursor === undefined ? {} : { next: encoder.encode(message.cursor) }) }
  }

  async retry(name: string, keys?: readonly Uint8Array[]): Promise<number> {
    return (await this.#post<{ retried: number }>(name, 'retry', { keys })).retried
  }

  async skip(name: string, keys: readonly Uint8Array[]): Promise<number> {
    return (await this.#post<{ skipped: number }>(name, 'skip', { keys })).skipped
  }

  async #post<T>(name: string, call: string, message: object, rest: Partial<HttpRequest> = {}): Promise<T> {
    return (await this.#send<T>('POST', `${pathOf(name)}/${call}`, message, rest)).message
  }

  async #send<T>(
    method: HttpRequest['method'],
    path: string,
    message?: object,
    rest: Partial<HttpRequest> = {},
  ): Promise<Answered<T>> {
    const content = message && { headers: { 'content-type': MSGPACK }, body: encodeMessage(message) }
    const { status, headers, body } = await this.#transport.send({ method, path, ...content, ...rest })
    return { status, message: messageOf<T>(body, headers.get('content-type')) }
  }
}

const OBSERVERS = '/v1/observers'
const encoder = new TextEncoder()
const decoder = new TextDecoder()

function pathOf(name: string): string {
  return `${OBSERVERS}/${encodeURIComponent(name)}`
}

/** Without the other fields of a notification, which may be given as a claim. */
function nameOf({ key, fence }: ClaimName): ClaimName {
  return { key, fence }
}

function stateOf({ prefix, start, end, workers, ...state }: WireState): ObserverState {
  const range: GivenRange = prefix === undefined ? { start, end } : { prefix }
  return {
    ...state,
    range,
    workers: workers.map(({ worker, claimed, seenAt }) => ({ worker, claimed, seenAtMs: Date.parse(seenAt) })),
  }
}
