import { KvError } from '../../../errors/kv-error.js'
import { StoreMeters } from '../../../meters/store-meters.js'
import type { LoggedChange } from '../../../percolator/change.js'
import type { Engine, EngineOp } from './engine.js'

/**
 * Called once per batch, in a later turn of the event loop than its submission. Must not throw.
 * @param error undefined when the batch is written and, with `sync`, on disk. The engine's error when the batch may or may not be
 *   on disk; KvError `storage_unavailable` when it waited behind a failed write and is not on disk.
 */
export type Answered = (error: unknown) => void

type GroupMeters = Pick<StoreMeters, 'writes' | 'groupBatches' | 'groupBytes' | 'failedWrites'>

interface Batch {
  readonly ops: readonly EngineOp[]
  readonly bytes: number
  readonly answered: Answered
  readonly changes: readonly LoggedChange[] | undefined
}

class Group {
  readonly batches: Batch[] = []
  #over: Promise<void> | undefined
  #end: () => void = () => {}

  get over(): Promise<void> {
    this.#over ??= new Promise((resolve) => {
      this.#end = resolve
    })
    return this.#over
  }

  answer(error: unknown): void {
    for (const { answered } of this.batches) {
      try {
        answered(error)
      } catch (fault) {
        queueMicrotask(() => {
          throw fault // A caller's fault must not leave the other batches of its group, and all later groups, without answers.
        })
      }
    }
    this.#end()
  }
}

/**
 * Runs one write at a time, with one fsync for all batches that are ready when it starts. The batches of a group are written as
 * one LevelDB batch, so they land or fail together.
 */
export class GroupCommit {
  #next = new Group()
  #writing: Promise<void> | undefined
  readonly queue = { batches: 0, bytes: 0 }

  constructor(
    readonly engine: Engine,
    readonly sync: boolean,
    /** Called after a failed write, before its batches are rejected. Must not reject. */
    readonly recover: (error: unknown) => Promise<void>,
    /** Makes the log records of one group's changes, which are written with the group. */
    readonly logOf: (changes: LoggedChange[]) => EngineOp[] = () => [],
    readonly meters: GroupMeters = new StoreMeters(),
  ) {}

  /** Settles as `Answered` says. */
  submit(ops: readonly EngineOp[], changes?: readonly LoggedChange[]): Promise<void> {
    return new Promise((resolve, reject) => {
      this.enqueue(ops, (error) => (error === undefined ? resolve() : reject(error)), changes)
    })
  }

  /**
   * `submit` without a promise.
   * @param changes committed by the batch, for the log; few, because a group handles them in one turn of the event loop.
   */
  enqueue(ops: readonly EngineOp[], answered: Answered, changes?: readonly LoggedChange[]): void {
    const bytes = opsBytes(ops)
    this.queue.batches++
    this.queue.bytes += bytes
    this.#next.batches.push({ ops, bytes, answered, changes: changes?.length === 0 ? undefined : changes })
    // Starts after this turn of the event loop, so that all requests of the turn share the first write.
    this.#writing ??= new Promise<void>((next) => setImmediate(next)).then(() => this.#run())
  }

  /** Fulfilled after the answer to a batch submitted in this turn of the event loop, whether or not it was written. */
  get nextIsOver(): Promise<void> {
    return this.#next.over
  }

  async #run(): Promise<void> {
    while (this.#next.batches.length > 0) {
      const group = this.#takeNext()
      const ops = this.#opsOf(group)
      const beganMs = performance.now()
      try {
        await this.engine.write(ops, this.sync)
      } catch (error) {
        this.meters.failedWrites++
        const behind = this.#takeNext()
        await this.recover(error)
        this.#dequeue(group)
        this.#dequeue(behind)
        group.answer(error)
        behind.answer(notWritten(error))
        continue
      }
      this.meters.writes.observe((performance.now() - beganMs) / 1000)
      this.meters.groupBatches.observe(group.batches.length)
      this.meters.groupBytes.observe(this.#dequeue(group))
      group.answer(undefined)
    }
    this.#writing = undefined
  }

  #opsOf({ batches }: Group): readonly EngineOp[] {
    const [only] = batches
    if (batches.length === 1 && only?.changes === undefined) return (only as Batch).ops
    const ops: EngineOp[] = []
    const changes: LoggedChange[] = []
    for (const batch of batches) {
      for (const op of batch.ops) ops.push(op)
      if (batch.changes !== undefined) for (const change of batch.changes) changes.push(change)
    }
    if (changes.length > 0) for (const op of this.logOf(changes)) ops.push(op)
    return ops
  }

  #takeNext(): Group {
    const group = this.#next
    this.#next = new Group()
    return group
  }

  #dequeue({ batches }: Group): number {
    let sum = 0
    for (const { bytes } of batches) sum += bytes
    this.queue.batches -= batches.length
    this.queue.bytes -= sum
    return sum
  }

  async idle(): Promise<void> {
    while (this.#writing !== undefined) await this.#writing
  }
}

function notWritten(cause: unknown): KvError<'storage_unavailable'> {
  const detail = `the storage engine failed before this was written: ${cause instanceof Error ? cause.message : cause}`
  return new KvError('storage_unavailable', detail, {}, { cause })
}

function opsBytes(ops: readonly EngineOp[]): number {
  let bytes = 0
  for (const op of ops) bytes += op.key.length + (op.type === 'put' ? op.value.length : 0)
  return bytes
}
