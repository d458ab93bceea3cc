import { PersistentMap } from '../../src/bytes/persistent-map.js'
import type { EngineOp } from '../../src/store/leveldb/engine/engine.js'

/** One record of LevelDB's log. A CRC covers the whole of it, so it is there or not, never in part. */
interface LoggedBatch {
  readonly ops: readonly EngineOp[]
  isDurable: boolean
  /** What it replaced, once readers see it. */
  replaced: (readonly [key: string, value: Buffer | undefined])[] | undefined
}

/** Hears what readers get to see, and what a crash took from them. */
export interface DiskListener {
  shown(ops: readonly EngineOp[], state: PersistentMap<Buffer>): void
  lost(ops: readonly EngineOp[]): void
}

export const textOf = (bytes: Buffer): string => bytes.toString('latin1')

/**
 * What a machine keeps of a LevelDB: a log of batches, in the order in which they were written, up to somewhere fsynced.
 *
 * A process that dies loses nothing that it has written: the system has it. A machine that dies loses a suffix of what was
 * not fsynced. It is a suffix because an fsync covers what stands before it in the same log, and a new log file is only
 * begun when the old one's table has been written and fsynced, or is about to be by a process that has not died.
 */
export class Disk {
  readonly state = new PersistentMap<Buffer>()
  /** The youngest of the log; what is durable and shown is left out. */
  #log: LoggedBatch[] = []
  readonly #listener: DiskListener

  constructor(listener: DiskListener) {
    this.#listener = listener
  }

  append(ops: readonly EngineOp[]): LoggedBatch {
    // LevelDB copies too: whoever changes a buffer afterwards changes no record.
    const copied = ops.map((op): EngineOp => {
      const key = Buffer.from(op.key)
      return op.type === 'put' ? { type: 'put', key, value: Buffer.from(op.value) } : { type: 'del', key }
    })
    const batch: LoggedBatch = { ops: copied, isDurable: false, replaced: undefined }
    this.#log.push(batch)
    return batch
  }

  /** All of the log is durable. */
  sync(): void {
    for (const batch of this.#log) batch.isDurable = true
    this.#prune()
  }

  /** Readers see it from now on. */
  show(batch: LoggedBatch): void {
    const replaced: [string, Buffer | undefined][] = []
    for (const op of batch.ops) {
      const key = textOf(op.key)
      replaced.push([key, this.state.get(key)])
      if (op.type === 'put') this.state.set(key, op.value)
      else this.state.delete(key)
    }
    batch.replaced = replaced
    this.#prune()
    this.#listener.shown(batch.ops, this.state)
  }

  /** Opened again by the same process, or by another one of the same machine: what is in the log is there. */
  recover(): void {
    this.#recover()
    this.sync()
  }

  /**
   * The machine stops. @param survivors given how many batches are not fsynced, how many of them, from the oldest on, are
   * there afterwards.
   * @returns batches lost that readers had seen.
   */
  crash(survivors: (unsynced: number) => number): number {
    const unsynced = this.#log.filter(({ isDurable }) => !isDurable)
    const lost = unsynced.slice(survivors(unsynced.length))
    this.#log = this.#log.filter((batch) => !lost.includes(batch))
    let lostAndSeen = 0
    for (const { ops, replaced } of lost.toReversed()) {
      if (replaced === undefined) continue
      for (const [key, value] of replaced.toReversed()) {
        if (value === undefined) this.state.delete(key)
        else this.state.set(key, value)
      }
      lostAndSeen++
      this.#listener.lost(ops)
    }
    this.recover()
    return lostAndSeen
  }

  #recover(): void {
    for (const batch of [...this.#log]) if (batch.replaced === undefined) this.show(batch)
  }

  #prune(): void {
    this.#log = this.#log.filter(({ isDurable, replaced }) => !isDurable || replaced === undefined)
  }
}
