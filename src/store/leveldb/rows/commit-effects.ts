import { keyText } from '../../../bytes/key-text.js'
import { advancePosition } from '../../../changes/rules/advance-position.js'
import { decodeConsumer } from '../../../changes/rules/codec/consumer.js'
import { type Consumer, noSuchConsumer } from '../../../changes/rules/consumer.js'
import { invalid, isKvError, KvError } from '../../../errors/kv-error.js'
import { atHand } from '../../../event-loop/after.js'
import { type FailedLeaseCheck, leaseLost } from '../../../leases/rules/lease.js'
import { acknowledge } from '../../../observers/rules/acknowledge.js'
import {
  type AskedAck,
  type AskedNotification,
  askedAcks,
  askedNotifications,
} from '../../../observers/rules/asked-effects.js'
import type { Ack, StoredNotification } from '../../../observers/rules/cell.js'
import { decodeAck, decodeNotification } from '../../../observers/rules/codec/cell.js'
import type { PrewriteRequest } from '../../../percolator/api.js'
import type { CommitEffects, LeaseGuard, PositionEffect } from '../../../percolator/commit-effects.js'
import { startTsTaken, withEntries } from '../../../percolator/errors.js'
import { expiryTs, hasExpired, isData } from '../../../percolator/write.js'
import type { Timestamp } from '../../../timestamp.js'
import type { EffectsDecision, PrewriteEffects } from '../../calls/prewrite.js'
import { cellName } from '../../cell-names.js'
import { nameOfConsumer } from '../../consumers.js'
import type { CellEffect } from '../../observed.js'
import { latchOf, type SystemName } from '../../system-records.js'
import type { RowStore } from './row-store.js'

interface AckToMake extends AskedAck {
  readonly name: SystemName
  notification: StoredNotification | undefined
  ack: Ack | undefined
  /** commit_ts or expiry of the newest version at `seen`. Read only if the notification is newer than `seen`. */
  newestSeen: Timestamp
}

interface PositionToMake {
  readonly effect: PositionEffect
  consumer: Consumer | undefined
}

/**
 * The commit effects of one prewrite: reads their cells under the latches of the rows, and decides about them with the
 * transaction's commit_ts.
 */
export class LevelDbCommitEffects implements PrewriteEffects {
  readonly #rows: RowStore
  readonly #request: PrewriteRequest
  readonly #acks: AckToMake[] = []
  #unclaimed: readonly AckToMake[] = []
  readonly #notify: AskedNotification[] = []
  readonly #positions: PositionToMake[] = []
  readonly #leases: readonly LeaseGuard[]
  #refusal: KvError | undefined
  readonly latches: readonly string[]

  /** @throws KvError `invalid_argument` for commit effects that no transaction may have. */
  constructor(rows: RowStore, request: PrewriteRequest, commitEffects: CommitEffects) {
    this.#rows = rows
    this.#request = request
    const { acks = [], notify = [], positions = [], leases = [] } = commitEffects
    this.#leases = leases
    if (!request.tryOnePc || request.maxCommitTs)
      throw invalid('riders', 'riders need try_one_pc, and no max_commit_ts')
    if (request.mutations.length + acks.length + notify.length + positions.length === 0)
      throw invalid('mutations', 'a prewrite without mutations needs an acknowledgement, a notification or a position')
    try {
      this.#take(commitEffects)
    } catch (error) {
      if (!(error instanceof KvError)) throw error
      this.#refusal = error
    }
    this.latches = this.#latches()
  }

  /** @throws KvError `invalid_argument`, `not_found` */
  #take(commitEffects: CommitEffects): void {
    const { lastTs, observed } = this.#rows
    for (const ack of askedAcks(commitEffects, this.#request.startTs, lastTs, observed.required)) {
      const name = cellName('notify', ack.observer.id, ack.effect.key)
      this.#acks.push({ ...ack, name, notification: undefined, ack: undefined, newestSeen: 0 })
    }
    for (const cell of askedNotifications(commitEffects, observed.required)) this.#notify.push(cell)
    for (const effect of commitEffects.positions ?? []) {
      this.#requireSoundPosition(effect)
      this.#positions.push({ effect, consumer: undefined })
    }
  }

  #requireSoundPosition({ consumer, from, ts }: PositionEffect): void {
    if (this.#positions.some(({ effect }) => effect.consumer === consumer))
      throw invalid('riders', `the consumer ${consumer} is acknowledged twice`)
    if (from > ts) throw invalid('riders', `${consumer}: from ${from} is above ts ${ts}`)
    // Commits may be missing at or below a timestamp above resolved_ts. A reset may have moved a position there.
    const { changes } = this.#rows
    if (ts > from && ts > changes.resolved.last && ts > changes.resolve())
      throw invalid('riders', `${consumer}: ts ${ts} is above resolved_ts, in the future`)
  }

  requireValid(): void {
    if (this.#refusal !== undefined) throw this.#refusal
  }

  #latches(): string[] {
    const latches = new Set<string>()
    for (const { effect } of this.#acks) latches.add(keyText(effect.key))
    for (const { key } of this.#notify) latches.add(keyText(key))
    for (const { key } of this.#request.mutations) latches.delete(keyText(key))
    for (const { effect } of this.#positions) latches.add(latchOf(nameOfConsumer(effect.consumer)))
    return [...latches]
  }

  // ---- Reading

  loadSync(): boolean {
    const names = this.#names()
    if (names.length + this.#notify.length > RECORDS_SYNC_MAX) return false
    const values: (Uint8Array | undefined)[] = []
    for (const name of names) {
      const value = this.#rows.records.getSync(name)
      if (value === null) return false
      values.push(value)
    }
    this.#found(values)
    return !this.#acks.some(isHidden)
  }

  async load(): Promise<void> {
    this.#found(await this.#rows.records.many(this.#names()))
    for (const one of this.#acks) if (isHidden(one)) one.newestSeen = await this.#newestAt(one.effect.key, one.seen)
  }

  #names(): SystemName[] {
    this.#unclaimed = this.#acks.filter((one) => !this.#isClaimed(one))
    return [
      ...this.#unclaimed.flatMap(({ name, observer, effect }) => [name, cellName('ack', observer.id, effect.key)]),
      ...this.#positions.map(({ effect }) => nameOfConsumer(effect.consumer)),
    ]
  }

  /** @param values of `#names`. */
  #found(values: readonly (Uint8Array | undefined)[]): void {
    let at = 0
    for (const one of this.#unclaimed) {
      const [notification, ack] = [values[at++], values[at++]]
      one.notification = notification && decodeNotification(notification)
      one.ack = ack && decodeAck(ack)
    }
    for (const one of this.#positions) {
      const record = values[at++]
      one.consumer = record && decodeConsumer(one.effect.consumer, record)
    }
  }

  /**
   * True when the listener knows the cell, and the run has seen its newest change. A run that began before the claim may also
   * have begun before the last acknowledgement. After a failed write the listener may not know what is on disk, until `reloaded`.
   */
  #isClaimed(one: AckToMake): boolean {
    if (!this.#rows.records.isOutcomeKnown) return false
    const { effect, observer, seen } = one
    const { fence, notification } = this.#rows.observed.handedOut(observer.id, effect.key)
    if (fence !== effect.fence || seen < fence || notification === undefined || notification.changeTs > seen)
      return false
    one.notification = notification
    return true
  }

  /** commit_ts or expiry of the newest Put or Delete at or below `ts`; 0: none. */
  async #newestAt(key: Uint8Array, ts: Timestamp): Promise<Timestamp> {
    const writes = await this.#rows.historyOf(key, ts + 1, 'data')
    const newest = writes.find((write) => write.commitTs <= ts && isData(write))
    if (newest === undefined) return 0
    return hasExpired(newest.expireTs, ts) ? expiryTs(newest) : newest.commitTs
  }

  // ---- Decision

  countConflict(error: unknown): void {
    if (!isKvError(error, 'write_conflict')) return
    for (const id of new Set(this.#acks.map(({ observer }) => observer.id))) this.#rows.observed.conflicted(id)
  }

  decide(commitTs: Timestamp, hasWrites: boolean): EffectsDecision {
    const { observed, safePoint, lastTs, leases } = this.#rows
    if (commitTs > lastTs + 1)
      throw invalid('riders', `the transaction would commit at ${commitTs}, ahead of the clock`)
    const { startTs, primary } = this.#request
    const effects: CellEffect[] = []
    const acknowledged = new Set<string>()
    let depth = 0
    for (const { effect, observer, name, seen, notification, ack, newestSeen } of this.#acks) {
      const { id } = observer
      const { key } = effect
      const { fence, hasFailure } = observed.handedOut(id, key)
      const newestFence = Math.max(fence, id) // A claim under an earlier observer of this name is of another cell.
      const context = { notification, ack, safePoint, newestFence, observedSince: id, newestSeen: () => newestSeen }
      const outcome = acknowledge({ effect, seen, startTs, commitTs }, context)
      if (outcome.kind === 'refused') {
        if (outcome.error.code !== 'write_conflict') throw outcome.error
        observed.conflicted(id)
        throw withEntries([outcome.error])
      }
      if (outcome.kind === 'repeat') {
        if (!hasWrites) return outcome
        throw withEntries([startTsTaken(key, this.#request, outcome.commitTs)])
      }
      depth = Math.max(depth, (notification?.depth ?? 0) + 1)
      acknowledged.add(name)
      const change = {
        key,
        ack: outcome.ack,
        ...(outcome.isClean ? { notification: null } : {}),
        ...(hasFailure ? { failure: null } : {}),
      }
      effects.push({ id, change, acknowledged: { notification: outcome.isClean ? undefined : notification } })
    }
    const consumers: Consumer[] = []
    for (const { effect, consumer } of this.#positions) {
      if (consumer === undefined) throw noSuchConsumer(effect.consumer)
      const outcome = advancePosition({ effect, startTs, commitTs, primary }, consumer)
      if (outcome.kind === 'refused') throw withEntries([outcome.error])
      if (outcome.kind === 'advanced') consumers.push(outcome.consumer)
      else if (!hasWrites) return outcome
      else throw withEntries([startTsTaken(primary, this.#request, outcome.commitTs)])
    }
    const notified = this.#notify.length > 0 ? { cells: this.#notify, commitTs } : undefined
    // Comes last: the others recognize the repeat of a committed transaction.
    const lost = atHand(leases.lost(this.#leases))
    if (lost.length > 0) throw this.#lostLeases(lost)
    return { kind: 'decided', decidedEffects: { effects, notified, depth, acknowledged, consumers } }
  }

  /** Only the error of a prewrite has notifications. Leases with an index are checks of a transaction. */
  #lostLeases(lost: readonly FailedLeaseCheck[]): KvError {
    const error = leaseLost(lost)
    return this.#leases.some(({ index }) => index !== undefined) ? error : withEntries([error])
  }
}

const RECORDS_SYNC_MAX = 128

/** True when a newer change has replaced the notification that the run has seen. */
function isHidden({ notification, seen }: AckToMake): boolean {
  return notification !== undefined && notification.changeTs > seen
}
