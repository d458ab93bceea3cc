import { CACHE_BYTES_DEFAULT } from '../../limits.js'
import type { Timestamp } from '../../percolator/timestamp.js'
import type { RestoreProgress, Store } from '../store.js'
import { Changes } from './changes.js'
import { Collection } from './collection.js'
import { cursorSecretOf, META_MARK, META_SAFE_POINT, openDataDirectory, readMetaNumber } from './data-directory.js'
import type { Engine } from './engine.js'
import { PessimisticLocks } from './pessimistic-locks.js'
import { ReadValidation } from './read-validation.js'
import { Reads } from './reads.js'
import { Restoration } from './restoration.js'
import { RowStore } from './row-store.js'
import { StoredOutcomes } from './stored-outcomes.js'

export interface LevelDbStoreOptions {
  readonly directory: string
  /** `sync`: an answer goes out after its fsync. `async`: a crash of the machine can lose the last writes. */
  readonly durability: 'sync' | 'async'
  /** For the newest versions of keys read lately. */
  readonly cacheBytesMax?: number
  /** Unix milliseconds; tests step it. */
  readonly now?: () => number
  /** Tests put a failing one in. */
  readonly openEngine?: (directory: string) => Promise<Engine>
  /** See `LookUps`; tests set 0, for look-ups that they can hold. */
  readonly lookUpSlowMs?: number
}

/**
 * Percolator on one LevelDB. This file opens it and names the parts: what reads, what changes, what locks beforehand, all
 * on the same `RowStore`.
 * @throws DataDirectoryError
 */
export async function openLevelDbStore(options: LevelDbStoreOptions): Promise<Store> {
  const engine = await openDataDirectory(options.directory, options.openEngine)
  try {
    const savedMark = await readMetaNumber(engine, META_MARK)
    const safePoint = await readMetaNumber(engine, META_SAFE_POINT)
    const cursorSecret = await cursorSecretOf(engine)
    const { durability, cacheBytesMax = CACHE_BYTES_DEFAULT, now, lookUpSlowMs } = options
    const rows = new RowStore(engine, { durability, cacheBytesMax, now, savedMark, safePoint, lookUpSlowMs })
    await rows.start()
    return new LevelDbStore(rows, cursorSecret)
  } catch (error) {
    await engine.close()
    throw error
  }
}

class LevelDbStore implements Store {
  readonly name = 'leveldb'
  readonly #rows: RowStore
  readonly #reads: Reads
  readonly #validation: ReadValidation
  readonly #changes: Changes
  readonly #pessimistic: PessimisticLocks
  readonly #outcomes: StoredOutcomes
  readonly #collection: Collection
  readonly #restoration: Restoration

  constructor(
    rows: RowStore,
    readonly cursorSecret: Uint8Array,
  ) {
    this.#rows = rows
    this.#reads = new Reads(rows)
    this.#validation = new ReadValidation(rows)
    this.#changes = new Changes(rows, this.#validation)
    this.#pessimistic = new PessimisticLocks(rows)
    this.#outcomes = new StoredOutcomes(rows)
    this.#collection = new Collection(rows)
    this.#restoration = new Restoration(rows)
  }

  get safePoint(): Timestamp {
    return this.#rows.safePoint
  }
  get lockCount(): number {
    return this.#rows.locks.size
  }
  get restoring(): RestoreProgress | undefined {
    return this.#rows.restoring
  }
  probe(): boolean {
    this.#rows.reopenSoon()
    return this.#rows.isAvailable
  }
  clock(): Timestamp {
    return this.#rows.oracle.clock()
  }
  tso(count: number): Timestamp | Promise<Timestamp> {
    const ts = this.#rows.oracle.next(count)
    return typeof ts === 'number' ? ts : this.#rows.guard(() => ts)
  }
  close(): Promise<void> {
    return this.#rows.close()
  }

  readonly known: Store['known'] = (request) => this.#reads.known(request)
  readonly get: Store['get'] = (request) => this.#reads.get(request)
  readonly batchGet: Store['batchGet'] = (request) => this.#reads.batchGet(request)
  readonly scan: Store['scan'] = (request) => this.#reads.scan(request)
  readonly scanLock: Store['scanLock'] = (request) => this.#reads.scanLock(request)
  readonly mvccGetByKey: Store['mvccGetByKey'] = (request) => this.#reads.mvccGetByKey(request)
  readonly mvccGetByStartTs: Store['mvccGetByStartTs'] = (request) => this.#reads.mvccGetByStartTs(request)
  readonly validateReads: Store['validateReads'] = (request) =>
    this.#rows.guard(() => this.#validation.validate(request))

  readonly prewrite: Store['prewrite'] = (request, outcomeOf) => this.#changes.prewrite(request, outcomeOf)
  readonly exclusive: Store['exclusive'] = (claim, body) => this.#changes.exclusive(claim, body)
  readonly commit: Store['commit'] = (request) => this.#changes.commit(request)
  readonly rollback: Store['rollback'] = (request) => this.#changes.rollback(request)
  readonly cleanup: Store['cleanup'] = (request) => this.#changes.cleanup(request)
  readonly checkTxnStatus: Store['checkTxnStatus'] = (request) => this.#changes.checkTxnStatus(request)
  readonly checkSecondaryLocks: Store['checkSecondaryLocks'] = (request) => this.#changes.checkSecondaryLocks(request)
  readonly txnHeartBeat: Store['txnHeartBeat'] = (request) => this.#changes.txnHeartBeat(request)
  readonly resolveLock: Store['resolveLock'] = (request) => this.#changes.resolveLock(request)

  readonly acquirePessimisticLock: Store['acquirePessimisticLock'] = (request) => this.#pessimistic.acquire(request)
  readonly pessimisticRollback: Store['pessimisticRollback'] = (request) => this.#pessimistic.rollback(request)

  readonly once: Store['once'] = (key, body) => this.#outcomes.once(key, body)
  readonly outcome: Store['outcome'] = (key) => this.#outcomes.get(key)
  readonly putOutcome: Store['putOutcome'] = (outcome) => this.#outcomes.put(outcome)
  readonly collectOutcomes: Store['collectOutcomes'] = (isExpired) => this.#outcomes.collect(isExpired)

  readonly raiseSafePoint: Store['raiseSafePoint'] = (safePoint) => this.#collection.raiseSafePoint(safePoint)
  readonly collect: Store['collect'] = (safePoint) => this.#collection.collect(safePoint)
  readonly deleteRange: Store['deleteRange'] = (range) => this.#collection.deleteRange(range)

  readonly restore: Store['restore'] = (source, blocks, isAnew) => this.#restoration.restore(source, blocks, isAnew)
}
