import { KvError } from '../../../errors/kv-error.js'
import type { Engine, EngineOp } from './engine.js'

interface Waiting {
  readonly ops: readonly EngineOp[]
  readonly bytes: number
  readonly resolve: () => void
  readonly reject: (error: unknown) => void
}

/**
 * Runs one write at a time, with one fsync for all batches that are ready when it starts. The batches of a group are written as
 * one LevelDB batch, so they land or fail together.
 */
export class GroupCommit {
  #waiting: Waiting[] = []
  #writing: Promise<void> | undefined
  /** Counts of batches that are waiting or being written. */
  readonly queue = { batches: 0, bytes: 0 }

  constructor(
    readonly engine: Engine,
    readonly sync: boolean,
    /** Called after a failed write, before its batches are rejected. Must not reject. */
    readonly recover: (error: unknown) => Promise<void>,
  ) {}

  /**
   * Fulfilled when the batch is written and, with `sync`, on disk. Rejects with the engine's error when the batch may be on disk
   * or not; with KvError `storage_unavailable` when it waited behind a failed write and is not on disk.
   */
  submit(ops: readonly EngineOp[]): Promise<void> {
    return new Promise((resolve, reject) => {
      const bytes = bytesOf(ops)
      this.queue.batches++
      this.queue.bytes += bytes
      this.#waiting.push({ ops, bytes, resolve, reject })
      // Starts after this turn of the event loop, so that all requests of the turn share the first write.
      this.#writing ??= new Promise<void>((next) => setImmediate(next)).then(() => this.#run())
    })
  }

  async #run(): Promise<void> {
    while (this.#waiting.length > 0) {
      const group = this.#waiting
      this.#waiting = []
      const ops = group.length === 1 ? (group[0] as Waiting).ops : group.flatMap((batch) => batch.ops)
      try {
        await this.engine.write(ops, this.sync)
      } catch (error) {
        const behind = this.#waiting
        this.#waiting = []
        await this.recover(error)
        this.#dequeue([...group, ...behind])
        for (const batch of group) batch.reject(error)
        for (const batch of behind) batch.reject(notWritten(error))
        continue
      }
      this.#dequeue(group)
      for (const batch of group) batch.resolve()
    }
    this.#writing = undefined
  }

  #dequeue(batches: readonly Waiting[]): void {
    this.queue.batches -= batches.length
    for (const { bytes } of batches) this.queue.bytes -= bytes
  }

  /** Fulfilled when no batch is waiting or being written. */
  async idle(): Promise<void> {
    while (this.#writing !== undefined) await this.#writing
  }
}

function notWritten(cause: unknown): KvError<'storage_unavailable'> {
  const detail = `the storage engine failed before this was written: ${cause instanceof Error ? cause.message : cause}`
  return new KvError('storage_unavailable', detail, {}, { cause })
}

function bytesOf(ops: readonly EngineOp[]): number {
  let bytes = 0
  for (const op of ops) bytes += op.key.length + (op.type === 'put' ? op.value.length : 0)
  return bytes
}
