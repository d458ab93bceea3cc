import { afterKey } from '../../bytes/key-range.js'
import type { LockInfo } from '../../errors/lock-info.js'
import { LOCK_WAIT_MS_DEFAULT } from '../../limits.js'
import type { MvccInfo } from '../../percolator/api.js'
import type { Timestamp } from '../../timestamp.js'
import type { CallOptions } from '../autocommit.js'
import { AS, type As, type Bytes, toKey } from '../bytes.js'
import { Db } from '../db.js'
import type { DbBackend } from '../db-backend.js'
import { newIdempotencyKey, requireIdempotencyKey } from '../idempotency-key.js'
import { keyRangeOf, RANGE_KINDS, type RangeOptions } from '../key-range.js'
import { COUNT, optionsOf, SIGNAL, TEXT, TIMESTAMP } from '../options.js'
import { type Readable, readableOf } from '../readable.js'
import { TIMEOUT_KINDS, type TimeoutOptions } from '../transaction-options.js'
import type { Shape } from './answer-shape.js'
import { SERVER_STATUS, TXN_DONE } from './call-answers.js'
import { HttpAdmin } from './http-admin.js'
import type { HttpApi } from './http-api.js'
import { encodeMessage, MSGPACK, messageOf } from './http-message.js'
import type { HttpRequest, HttpTransport } from './http-transport.js'
import { leasesOf, mayWrite, type OneShot, type OneShotAnswer } from './one-shot.js'
import type { ServerStatus } from './server-status.js'

interface SignalOption extends TimeoutOptions {
  readonly signal?: AbortSignal | undefined
}

interface AsOption<A extends As> {
  /** The type in which keys and values are returned. Default `text`. */
  readonly as?: A | undefined
}

export type LocksOptions<A extends As = As> = RangeOptions &
  SignalOption &
  AsOption<A> & {
    /** Maximum number of locks. Default: all. */
    readonly limit?: number | undefined
    /** Only locks of transactions that began at or before this timestamp. Default: all. */
    readonly maxTs?: Timestamp | undefined
  }

export type AtomicOptions<A extends As = As> = SignalOption &
  AsOption<A> & { readonly idempotencyKey?: string | undefined }

/** A lock, as returned by `db.locks`. */
export type Lock<A extends As = 'text'> = Readable<LockInfo, A>
/** All records of a key, as returned by `db.mvcc`. */
export type Records<A extends As = 'text'> = Readable<MvccInfo, A>
export type AtomicAnswer<A extends As = 'text'> = Readable<OneShotAnswer, A>

const ENDS = { ...TIMEOUT_KINDS, signal: SIGNAL }
const locksOptions = optionsOf<LocksOptions>('locks', {
  ...RANGE_KINDS,
  ...ENDS,
  as: AS,
  limit: COUNT,
  maxTs: TIMESTAMP,
})
const mvccOptions = optionsOf<SignalOption & AsOption<As>>('mvcc', { ...ENDS, as: AS })
const atomicOptions = optionsOf<AtomicOptions>('atomic', { ...ENDS, as: AS, idempotencyKey: TEXT })
const statusOptions = optionsOf<SignalOption>('status', ENDS)

/** Locks per page. */
const LOCKS_PAGE = 256

/** A `Db` on a server, with the calls that only a server has. */
export class Connection extends Db {
  readonly #transport: HttpTransport
  readonly #api: HttpApi
  /** @internal For the command line. */
  readonly admin: HttpAdmin

  /** @internal */
  constructor(backend: DbBackend, transport: HttpTransport, api: HttpApi, lockWaitMs?: number, timeoutMs?: number) {
    super(backend, lockWaitMs, timeoutMs)
    this.#transport = transport
    this.#api = api
    this.admin = new HttpAdmin(transport)
  }

  /**
   * Runs a transaction in one request, for programs that know all of its operations beforehand. It takes effect exactly once,
   * even if the request has to be repeated. The server runs it again after a lost race.
   * @throws KvError `precondition_failed` when a check does not hold.
   */
  async atomic<A extends As = 'text'>(body: OneShot, options: AtomicOptions<A> = {}): Promise<AtomicAnswer<A>> {
    const { as = 'text' as A, idempotencyKey = newIdempotencyKey() } = atomicOptions(options)
    requireIdempotencyKey(idempotencyKey)
    const isWrite = mayWrite(body)
    const send = async ({ signal, timeoutMs }: CallOptions): Promise<AtomicAnswer<A>> => {
      const answer = await this.#send<OneShotAnswer>(TXN_DONE, {
        method: 'POST',
        path: timeoutMs === undefined ? '/v1/txn' : `/v1/txn?timeout_ms=${timeoutMs}`,
        headers: { 'content-type': MSGPACK, 'idempotency-key': idempotencyKey },
        body: encodeMessage(body),
        waitMs: LOCK_WAIT_MS_DEFAULT,
        signal,
        isWrite,
      }).catch((error: unknown) => {
        this.held.refused(error, leasesOf(body))
        throw error
      })
      return readableOf(answer, as)
    }
    return isWrite ? this.timedWrite(options, send) : this.timed(options, send)
  }

  async status(options: SignalOption = {}): Promise<ServerStatus> {
    statusOptions(options)
    return this.timed(options, ({ signal }) =>
      this.#send<ServerStatus>(SERVER_STATUS, { method: 'GET', path: '/v1/status', signal }),
    )
  }

  /**
   * Yields the locks of a range in the order of their keys. `timeoutMs` limits each page. Locks that come or go meanwhile may be
   * missing or listed.
   */
  async *locks<A extends As = 'text'>(options: LocksOptions<A> = {}): AsyncGenerator<Lock<A>, void, undefined> {
    const { as = 'text' as A, limit = Number.POSITIVE_INFINITY } = locksOptions(options)
    const { maxTs = Number.MAX_SAFE_INTEGER } = options
    let { start, end } = keyRangeOf(options)
    for (let left = limit; left > 0; ) {
      const asked = Math.min(left, LOCKS_PAGE)
      const page = { maxTs, start, end, limit: asked }
      const { locks } = await this.timed(options, ({ signal }) => this.#api.withSignal(signal).scanLock(page))
      for (const lock of locks) yield readableOf(lock, as)
      const last = locks.at(-1)
      if (last === undefined || locks.length < asked) return
      left -= locks.length
      start = afterKey(last.key)
    }
  }

  /** Returns all records of a key: its lock, and its write records and values, newest first. */
  async mvcc<A extends As = 'text'>(key: Bytes, options: SignalOption & AsOption<A> = {}): Promise<Records<A>> {
    const { as = 'text' as A } = mvccOptions(options)
    const bytes = toKey(key)
    const ask = ({ signal }: CallOptions) => this.#api.withSignal(signal).mvccGetByKey({ key: bytes })
    return readableOf(await this.timed(options, ask), as)
  }

  async #send<T>(shape: Shape, request: HttpRequest): Promise<T> {
    return messageOf<T>(await this.#transport.send(request), shape)
  }
}
