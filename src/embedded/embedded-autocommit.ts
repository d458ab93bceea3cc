import { createHash } from 'node:crypto'
import { requireKey, requireValue } from '../bytes/byte-limits.js'
import type { KeyRange } from '../bytes/key-range.js'
import type { Autocommit, CallOptions, Counted } from '../client/autocommit.js'
import { inDoubt, withDeadline } from '../client/deadline.js'
import type { Touch, Write } from '../client/write.js'
import type { Database } from '../database/database.js'
import { MAX_RETRIES_DEFAULT } from '../limits.js'
import type { Version } from '../percolator/api.js'
import type { LeaseGuard } from '../percolator/commit-effects.js'
import type { Timestamp } from '../timestamp.js'
import type { Check } from '../txn/check.js'
import { conditionalWriteError } from '../txn/failed-condition.js'
import type { Idempotency } from '../txn/idempotency.js'
import type { PairLimits } from './limited-api.js'

export class EmbeddedAutocommit implements Autocommit {
  readonly #database: Database
  readonly #limits: PairLimits

  constructor(database: Database, limits: PairLimits) {
    this.#database = database
    this.#limits = limits
  }

  async get(key: Uint8Array, ts: Timestamp | undefined, options: CallOptions): Promise<Version | undefined> {
    options.signal?.throwIfAborted()
    requireKey(key, 'key', this.#limits.keyBytesMax)
    const answer = this.#database.get({ key, ts }, () => options)
    const found = answer instanceof Promise ? await answer : answer
    return found.found ? found : undefined
  }

  async write(write: Write, options: CallOptions): Promise<Timestamp> {
    const { key, value, expiry } = write
    requireKey(key, 'key', this.#limits.keyBytesMax)
    if (value !== undefined) requireValue(value, 'value', this.#limits.valueBytesMax)
    try {
      const transact = (signal: AbortSignal | undefined) =>
        this.#database.transact({
          checks: checksOf(write),
          ops: [value === undefined ? { op: 'delete', key } : { op: 'put', key, value, expiry }],
          maxRetries: MAX_RETRIES_DEFAULT,
          idempotency: idempotencyOf(write),
          lockWaitMs: options.lockWaitMs,
          signal,
        })
      const { answer } = await withDeadline(options.timeoutMs, options.signal, transact, inDoubt)
      return answer.commitTs ?? answer.startTs
    } catch (error) {
      throw conditionalWriteError(key, error)
    }
  }

  async touch(touch: Touch, options: CallOptions): Promise<Timestamp | undefined> {
    const { key, expiry } = touch
    requireKey(key, 'key', this.#limits.keyBytesMax)
    const transact = (signal: AbortSignal | undefined) =>
      this.#database.transact({
        checks: [],
        ops: [{ op: 'touch', key, expiry }],
        maxRetries: MAX_RETRIES_DEFAULT,
        idempotency: idempotencyOfTouch(touch),
        lockWaitMs: options.lockWaitMs,
        signal,
      })
    const { answer } = await withDeadline(options.timeoutMs, options.signal, transact, inDoubt)
    return answer.commitTs
  }

  async requireLeases(leases: readonly LeaseGuard[], { lockWaitMs, signal }: CallOptions): Promise<void> {
    await this.#database.transact({ checks: [], ops: [], commitEffects: { leases }, maxRetries: 0, lockWaitMs, signal })
  }

  async count({ start, end }: KeyRange, ts: Timestamp | undefined, options: CallOptions): Promise<Counted> {
    options.signal?.throwIfAborted()
    const range = { start, end, reverse: false, keyOnly: true }
    return this.#database.count({ ...range, ts, ...options })
  }
}

function checksOf({ key, ifMatch, ifAbsent }: Write): Check[] {
  if (ifMatch !== undefined) return [{ key, exists: true, commitTs: ifMatch }]
  return ifAbsent ? [{ key, exists: false }] : []
}

function idempotencyOfTouch({ key, expiry, idempotencyKey }: Touch): Idempotency | undefined {
  if (idempotencyKey === undefined) return undefined
  const fingerprint = createHash('sha256')
    .update(JSON.stringify(['touch', expiry]))
    .update(key)
    .digest()
  return { key: Buffer.from(idempotencyKey, 'latin1'), mayWrite: true, fingerprint }
}

function idempotencyOf({ key, value, ifMatch, ifAbsent, expiry, idempotencyKey }: Write): Idempotency | undefined {
  if (idempotencyKey === undefined) return undefined
  const hash = createHash('sha256').update(JSON.stringify([value?.length, key.length, ifMatch, ifAbsent, expiry]))
  const fingerprint = hash
    .update(key)
    .update(value ?? new Uint8Array())
    .digest()
  return { key: Buffer.from(idempotencyKey, 'latin1'), mayWrite: true, fingerprint }
}
