import { post, Refused } from './http-transaction.js'

/** As the wire has it. */
export interface WireLock {
  readonly key: string
  readonly primary: string
  readonly start_ts: number
  readonly ttl: number
  readonly type: string
  readonly for_update_ts: number
  readonly min_commit_ts: number
  readonly use_async_commit: boolean
  readonly secondaries: readonly string[]
}

interface Status {
  readonly status: 'locked' | 'committed' | 'rolled_back'
  readonly commit_ts: number
  readonly action: string
  readonly lock?: WireLock
}

/** Ends transactions whatever the age of their locks. */
const AT_ONCE = Number.MAX_SAFE_INTEGER

/** A client that coordinates its transactions itself, with no library: the Percolator protocol of docs/api.md over fetch. */
export class PercolatorClient {
  constructor(readonly url: string) {}

  call<T = Record<string, unknown>>(name: string, body: unknown): Promise<T> {
    return post<T>(`${this.url}/v1/percolator/${name}`, body)
  }

  async tso(): Promise<number> {
    return (await this.call<{ ts: number }>('tso', {})).ts
  }

  /** All pairs of a prefix at a timestamp; locks in the way are resolved once they are over their TTL. */
  async scan(prefix: string, ts: number): Promise<Map<string, string>> {
    const end = prefix.slice(0, -1) + String.fromCharCode(prefix.charCodeAt(prefix.length - 1) + 1)
    const body = { start: prefix, end, limit: 100_000, ts }
    const { pairs } = await this.resolving(() => this.call<{ pairs: { key: string; value: string }[] }>('scan', body))
    return new Map(pairs.map(({ key, value }) => [key, value]))
  }

  /** Tries again while locks are in the way. */
  async resolving<T>(body: () => Promise<T>): Promise<T> {
    for (;;) {
      try {
        return await body()
      } catch (error) {
        const locks = locksOf(error)
        if (locks.length === 0) throw error
        for (const lock of locks) await this.resolve(lock, await this.tso())
      }
    }
  }

  /** Every lock there is, resolved though its coordinator may live. */
  async resolveAll(): Promise<void> {
    const { locks } = await this.call<{ locks: WireLock[] }>('scan_lock', { max_ts: AT_ONCE })
    for (const lock of locks) await this.resolve(lock, AT_ONCE)
  }

  /** Brings the transaction of a lock to its end, unless it lives at `currentTs`. */
  async resolve(lock: WireLock, currentTs: number): Promise<void> {
    const { key, start_ts, for_update_ts } = lock
    const isPessimistic = lock.type === 'pessimistic'
    const decided = await this.#decide(lock, currentTs, isPessimistic)
    if (decided === undefined) return
    if (isPessimistic) await this.call('pessimistic_rollback', { keys: [key], start_ts, for_update_ts })
    else await this.call('resolve_lock', { start_ts, commit_ts: decided, keys: [key] })
  }

  /** @returns the commit_ts; 0: rolled back; undefined: it lives. */
  async #decide(lock: WireLock, currentTs: number, isPessimistic: boolean): Promise<number | undefined> {
    const status = await this.#status(lock, currentTs, isPessimistic)
    if (status === undefined) return undefined
    if (status.status !== 'locked') return status.commit_ts
    const primary = status.lock
    if (primary === undefined || !primary.use_async_commit || !isOver(primary, currentTs)) return undefined
    return this.#decideAsyncCommit(primary, currentTs)
  }

  async #decideAsyncCommit(primary: WireLock, currentTs: number): Promise<number | undefined> {
    const { start_ts, secondaries: keys, key } = primary
    let commitTs = primary.min_commit_ts
    if (keys.length > 0) {
      const body = { keys, start_ts }
      const answer = await this.call<{ locks: WireLock[]; commit_ts: number }>('check_secondary_locks', body)
      if (answer.locks.some((one) => !one.use_async_commit)) {
        const status = await this.#status(primary, currentTs, false, true)
        return status === undefined || status.status === 'locked' ? undefined : status.commit_ts
      }
      if (answer.commit_ts > 0) commitTs = answer.commit_ts
      else if (answer.locks.length < keys.length) commitTs = 0
      else commitTs = Math.max(commitTs, ...answer.locks.map((one) => one.min_commit_ts))
    }
    await this.call('resolve_lock', { start_ts, commit_ts: commitTs, keys: [key] })
    return commitTs
  }

  async #status(
    lock: WireLock,
    currentTs: number,
    isPessimistic: boolean,
    forceSyncCommit = false,
  ): Promise<Status | undefined> {
    try {
      return await this.call<Status>('check_txn_status', {
        primary: lock.primary,
        lock_ts: lock.start_ts,
        caller_start_ts: 0,
        current_ts: currentTs,
        rollback_if_not_exist: isOver(lock, currentTs),
        resolving_pessimistic_lock: isPessimistic,
        force_sync_commit: forceSyncCommit,
      })
    } catch (error) {
      if (error instanceof Refused && error.code === 'txn_not_found') return undefined
      throw error
    }
  }
}

function isOver({ start_ts, ttl }: WireLock, currentTs: number): boolean {
  return Math.floor(start_ts / 2048) + ttl < Math.floor(currentTs / 2048)
}

/** The locks that a refusal tells of. */
function locksOf(error: unknown): WireLock[] {
  if (!(error instanceof Refused) || error.code !== 'key_locked') return []
  const { lock, locks, errors } = error.problem as {
    lock?: WireLock
    locks?: WireLock[]
    errors?: { lock?: WireLock }[]
  }
  if (locks !== undefined) return locks
  if (errors !== undefined) return errors.flatMap((entry) => (entry.lock === undefined ? [] : [entry.lock]))
  return lock === undefined ? [] : [lock]
}
