import type { PersistentMap } from '../../src/bytes/persistent-map.js'
import type {
  Engine,
  EngineIterator,
  EngineOp,
  EngineRange,
  EngineReader,
} from '../../src/store/leveldb/engine/engine.js'
import { type Disk, textOf } from './disk.js'
import type { Faults } from './faults.js'
import type { Scheduler } from './scheduler.js'

class LevelError extends Error {
  constructor(
    readonly code: string,
    message: string,
  ) {
    super(message)
  }
}
const ioError = (): LevelError => new LevelError('LEVEL_IO_ERROR', 'the simulated disk failed')
const notOpen = (): LevelError => new LevelError('LEVEL_DATABASE_NOT_OPEN', 'the simulated database is not open')

/** What answers within a step of the scheduler, and what is let go before the answer. */
const ANSWERED_LATER = 0.3

/**
 * LevelDB as one process has it open, on a simulated disk. Every operation is one or more events of that process, so
 * others come in between, and it dies in between.
 */
export class SimulatedEngine implements Engine {
  readonly #disk: Disk
  readonly #scheduler: Scheduler
  readonly #faults: Faults
  #isOpen = true
  /** A write failed: LevelDB takes no more until it is opened again. */
  #isBroken = false
  /** Iterators and snapshots of an earlier opening are closed. */
  #opened = 0

  constructor(disk: Disk, scheduler: Scheduler, faults: Faults) {
    this.#disk = disk
    this.#scheduler = scheduler
    this.#faults = faults
  }

  getSync(key: Buffer): Buffer | undefined {
    if (!this.#isOpen) throw notOpen()
    if (this.#faults.strikes('read_failed')) throw ioError()
    return this.#disk.state.get(textOf(key))
  }

  get(key: Buffer): Promise<Buffer | undefined> {
    return this.#read('get', () => this.#disk.state.get(textOf(key)))
  }

  getMany(keys: Buffer[]): Promise<(Buffer | undefined)[]> {
    return this.#read('get many', () => keys.map((key) => this.#disk.state.get(textOf(key))))
  }

  iterator(range: EngineRange): EngineIterator {
    return this.#iteratorOf(this.#disk.state.snapshot(), range)
  }

  snapshot(): EngineReader & { close(): Promise<void> } {
    if (!this.#isOpen) throw notOpen()
    const state = this.#disk.state.snapshot()
    return {
      get: (key) => this.#read('get of a snapshot', () => state.get(textOf(key))),
      getMany: (keys) => this.#read('get many of a snapshot', () => keys.map((key) => state.get(textOf(key)))),
      iterator: (range) => this.#iteratorOf(state, range),
      close: async () => {},
    }
  }

  write(ops: readonly EngineOp[], sync: boolean): Promise<void> {
    return new Promise((resolve, reject) => {
      const opened = this.#opened
      const fail = (): void => {
        this.#isBroken = true
        this.#after('write fails', () => reject(ioError()))
      }
      const isClosed = (): boolean => !this.#isOpen || this.#isBroken || opened !== this.#opened
      this.#after('write', () => {
        if (isClosed()) return reject(this.#isOpen ? ioError() : notOpen())
        if (this.#faults.strikes('write_failed')) return fail()
        const batch = this.#disk.append(ops)
        if (this.#faults.strikes('write_failed_but_landed')) return fail()
        if (!sync) {
          this.#disk.show(batch)
          if (this.#faults.random.chance(0.05)) this.#disk.sync() // The system writes back now and then.
          return this.#after('written', resolve)
        }
        this.#after('fsync', () => {
          if (isClosed()) return reject(this.#isOpen ? ioError() : notOpen())
          if (this.#faults.strikes('fsync_failed')) return fail()
          this.#disk.sync()
          this.#disk.show(batch)
          this.#after('written', resolve)
        })
      })
    })
  }

  compactRange(): Promise<void> {
    return this.#read('compact', () => undefined)
  }

  approximateSize(): Promise<number> {
    return this.#read('approximate size', () => 0)
  }

  requireRoom(): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#after('room', () => (this.#faults.strikes('no_room') ? reject(ioError()) : resolve()))
    })
  }

  reopen(): Promise<void> {
    this.#isOpen = false
    this.#opened++
    return new Promise((resolve, reject) => {
      this.#after('reopen', () => {
        if (this.#faults.strikes('reopen_failed')) return reject(ioError())
        this.#disk.recover()
        this.#isOpen = true
        this.#isBroken = false
        this.#after('reopened', resolve)
      })
    })
  }

  async close(): Promise<void> {
    this.#isOpen = false
    this.#opened++
  }

  #iteratorOf(state: PersistentMap<Buffer>, { gte, lt, reverse = false, values = true }: EngineRange): EngineIterator {
    const opened = this.#opened
    const entries = state.range(textOf(gte), textOf(lt), Number.POSITIVE_INFINITY, reverse)
    let at = 0
    return {
      nextv: (size) =>
        this.#read('next', () => {
          if (opened !== this.#opened) throw new LevelError('LEVEL_ITERATOR_NOT_OPEN', 'the iterator is closed')
          const page = entries.slice(at, at + size)
          at += size
          return page.map(([key, value]) => [Buffer.from(key, 'latin1'), values ? value : Buffer.alloc(0)])
        }),
      close: async () => {},
    }
  }

  /** Reads at some moment, and answers then or later. */
  #read<T>(label: string, body: () => T): Promise<T> {
    return new Promise((resolve, reject) => {
      this.#after(label, () => {
        if (!this.#isOpen) return reject(notOpen())
        if (this.#faults.strikes('read_failed')) return reject(ioError())
        try {
          const answer = body()
          if (this.#faults.random.chance(ANSWERED_LATER)) this.#after(`${label} answers`, () => resolve(answer))
          else resolve(answer)
        } catch (error) {
          reject(error)
        }
      })
    })
  }

  #after(label: string, run: () => void): void {
    const { random } = this.#faults
    const delayMs = random.chance(0.6) ? 0 : this.#faults.profile.diskMsMax * random.next() ** 4
    this.#scheduler.schedule(this.#scheduler.current, delayMs, label, run)
  }
}
