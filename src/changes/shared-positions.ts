import { keyText } from '../bytes/key-text.js'
import type { EffectRows, EffectRowsRequest } from '../coordinator/effect-rows.js'
import { inParts } from '../coordinator/in-parts.js'
import { LockResolver } from '../coordinator/lock-resolver.js'
import { invalid, isKvError, KvError } from '../errors/kv-error.js'
import type { PrewriteMutation } from '../percolator/api.js'
import type { PositionEffect } from '../percolator/commit-effects.js'
import { startTsTaken } from '../percolator/errors.js'
import { nameOfConsumer } from '../store/consumers.js'
import type { Store } from '../store/store.js'
import type { Timestamp } from '../timestamp.js'
import { advancePosition } from './rules/advance-position.js'
import { decodeConsumer } from './rules/codec/consumer.js'
import { decodePosition, encodePosition, type PositionRow, positionKey } from './rules/codec/position-row.js'
import { type Consumer, noSuchConsumer } from './rules/consumer.js'

const KEYS_AT_ONCE = 256
/** How long a look at the positions waits for transactions that are moving them. */
const LOOK_WAIT_MS = 1000

interface KnownRow extends PositionRow {
  /** `commitTs` of the consumer's record: its last reset. */
  readonly resetTs: Timestamp
}

interface Move {
  readonly effect: PositionEffect
  readonly record: Consumer
  readonly primary: Uint8Array
  /** Before the transaction. */
  readonly position: Timestamp
}

/**
 * Positions of consumers where several servers share the store. What is acknowledged is a row of the transaction that does so, so
 * Percolator's conflict check lets at most one of two that go on from the same position commit. The record has what servers
 * decide: the position after a reset, and over times without a change.
 */
export class SharedPositions {
  readonly #store: Store
  readonly #resolver: LockResolver
  /** By the ids of consumers, as this server has read them last. */
  readonly #known = new Map<Timestamp, KnownRow>()

  constructor(store: Store) {
    this.#store = store
    this.#resolver = new LockResolver(store)
  }

  /** @param record of the consumer. @returns it with what was acknowledged, as far as known. */
  of(record: Consumer): Consumer {
    const known = this.#known.get(record.id)
    return known?.resetTs === record.commitTs ? acknowledged(record, known) : record
  }

  /** Reads what was acknowledged. Leaves out those whose locks stay. */
  async read(records: readonly Consumer[]): Promise<void> {
    for (const some of inParts(records, KEYS_AT_ONCE)) {
      const keys = some.map(positionKey)
      try {
        const look = () => this.#store.batchGet({ keys })
        const { pairs } = await this.#resolver.resolving(LOOK_WAIT_MS, look)
        const values = new Map(pairs.map(({ key, value }) => [keyText(key), value]))
        for (const [i, { id, commitTs: resetTs }] of some.entries()) {
          const value = values.get(keyText(keys[i] as Uint8Array))
          if (value === undefined) this.#known.delete(id)
          else this.#known.set(id, { ...decodePosition(value), resetTs })
        }
      } catch (error) {
        if (!isKvError(error, 'key_locked')) throw error
      }
    }
  }

  /** @returns the row of a transaction that acknowledges everything up to `ts`. @throws KvError `not_found`, `key_locked` */
  async moved(name: string, ts: Timestamp, startTs: Timestamp): Promise<PrewriteMutation> {
    const record = await this.#recordOf(name)
    const { consumer } = await this.#at(record, { startTs, lockWaitMs: LOOK_WAIT_MS })
    return mutationOf(record, { ackedTs: Math.max(ts, consumer.ackedTs), startTs })
  }

  /**
   * @param record as it was before a reset, or a removal.
   * @returns a row with which a transaction that has read that record conflicts, unless it has committed.
   */
  ended(record: Consumer): PrewriteMutation {
    this.#known.delete(record.id)
    return { op: 'delete', key: positionKey(record) }
  }

  /** See `EffectsAsRows`. */
  async effectRows(request: EffectRowsRequest): Promise<EffectRows> {
    const { commitEffects, startTs, mutations, mayRepeat = false } = request
    const moves: Move[] = []
    let committedAt: Timestamp | undefined
    for (const effect of commitEffects.positions ?? []) {
      const { consumer: name } = effect
      await this.#requireSound(effect)
      if (moves.some((move) => move.effect.consumer === name))
        throw invalid('riders', `the consumer ${name} is acknowledged twice`)
      const record = await this.#recordOf(name)
      const { consumer, rowCommitTs } = await this.#at(record, request)
      const primary = mutations[0]?.key ?? Buffer.from(name)
      const outcome = advancePosition(
        { effect, startTs, commitTs: startTs, primary },
        { ...consumer, commitTs: rowCommitTs },
      )
      if (outcome.kind === 'refused') throw outcome.error
      if (outcome.kind === 'advanced') moves.push({ effect, record, primary, position: consumer.position })
      else if (mayRepeat) committedAt = outcome.commitTs
      else throw startTsTaken(primary, { startTs, primary }, outcome.commitTs)
    }
    return {
      committedAt,
      mutations: moves.map(({ effect, record }) => mutationOf(record, { ackedTs: effect.ts, startTs })),
      markDepth: 0,
      refusal: (error) => refusalOf(error, moves),
      committed: () => this.read(moves.map(({ record }) => record)),
    }
  }

  async #requireSound({ consumer, from, ts }: PositionEffect): Promise<void> {
    if (from > ts) throw invalid('riders', `${consumer}: from ${from} is above ts ${ts}`)
    // Above resolved_ts a transaction may still commit below `ts`.
    const isPassed = ts === from || (ts <= this.#store.time.clock() && ts <= (await this.#store.log.resolve(ts)))
    if (!isPassed) throw invalid('riders', `${consumer}: ts ${ts} is above resolved_ts, in the future`)
  }

  /** Read without the name's latch, which the transaction holds. @throws KvError `not_found` */
  async #recordOf(name: string): Promise<Consumer> {
    const bytes = await this.#store.system.get(nameOfConsumer(name))
    if (bytes === undefined) throw noSuchConsumer(name)
    return decodeConsumer(name, bytes)
  }

  /** @returns the consumer as of start_ts, and the commit_ts of its row. @throws KvError `key_locked` */
  async #at(
    record: Consumer,
    { startTs, lockWaitMs, signal }: Pick<EffectRowsRequest, 'startTs' | 'lockWaitMs' | 'signal'>,
  ): Promise<{ readonly consumer: Consumer; readonly rowCommitTs: Timestamp }> {
    const get = () => this.#store.get({ key: positionKey(record), ts: startTs })
    const answer = await this.#resolver.resolving(lockWaitMs, get, signal)
    if (answer.found)
      return { consumer: acknowledged(record, decodePosition(answer.value)), rowCommitTs: answer.commitTs }
    return { consumer: record, rowCommitTs: 0 }
  }
}

function acknowledged(record: Consumer, { ackedTs, startTs }: PositionRow): Consumer {
  return { ...record, ackedTs, startTs, position: Math.max(record.position, ackedTs) }
}

function mutationOf(record: Consumer, row: PositionRow): PrewriteMutation {
  return { op: 'put', key: positionKey(record), value: encodePosition(row) }
}

/** Another transaction has moved the position between the look and the lock. Clients do not know the row. */
function refusalOf(error: unknown, moves: readonly Move[]): unknown {
  if (!isKvError(error, 'write_conflict') && !isKvError(error, 'txn_lock_not_found')) return error
  const { key } = error.fields
  const move = key && moves.find(({ record }) => keyText(positionKey(record)) === keyText(key))
  if (move === undefined) return error
  const { effect, primary, position } = move
  if (isKvError(error, 'write_conflict') && error.fields.reason !== 'self_rolled_back') {
    const fields = { ...error.fields, key: primary, primary, reason: 'acknowledged' as const, retryable: false }
    const text = `another transaction has moved the consumer ${effect.consumer} on from ${position}`
    return new KvError('write_conflict', text, { ...fields, consumer: effect.consumer, position })
  }
  const text = `the transaction at ${error.fields.startTs} was rolled back by others, who found its locks too old`
  return new KvError(error.code, text, { ...error.fields, key: primary })
}
