import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach } from 'vitest'
import { KvError } from '../../src/errors/kv-error.js'
import type { Awaitable } from '../../src/event-loop/after.js'
import type { PrewriteMutation, PrewriteRequest } from '../../src/percolator/api.js'
import { openLevelDb } from '../../src/store/leveldb/directory/open-level-db.js'
import { sealedEngine } from '../../src/store/leveldb/engine/checksum.js'
import type { Engine, EngineOp, EngineReader } from '../../src/store/leveldb/engine/engine.js'
import type { LevelDbStoreOptions } from '../../src/store/leveldb/leveldb-store.js'
import { type EngineStoreOptions, openMemoryStore } from '../../src/store/leveldb/leveldb-store.js'
import type { CompleteStore, Store } from '../../src/store/store.js'
import { type Timestamp, timestampFromMs } from '../../src/timestamp.js'
import { openTestStore, reopenTestStore } from './test-store.js'

/** 14 November 2023: where the tests' clock begins. */
export const START_MS = 1_700_000_000_000

export class TestClock {
  ms = START_MS
  readonly now = (): number => this.ms
  ts(logical = 0): Timestamp {
    return timestampFromMs(this.ms) + logical
  }
}

export const utf8 = (text: string): Buffer => Buffer.from(text)
export const text = (bytes: Uint8Array): string => Buffer.from(bytes).toString()

export const put = (key: string, value: string | Uint8Array = `value of ${key}`): PrewriteMutation => ({
  op: 'put',
  key: utf8(key),
  value: typeof value === 'string' ? utf8(value) : value,
})
export const del = (key: string): PrewriteMutation => ({ op: 'delete', key: utf8(key) })

/** The first mutation's key is the primary unless told otherwise. */
export function prewriteOf(
  startTs: Timestamp,
  mutations: readonly PrewriteMutation[],
  rest: Partial<PrewriteRequest> = {},
): PrewriteRequest {
  return { mutations, primary: mutations[0]?.key ?? utf8(''), startTs, lockTtl: 3000, ...rest }
}

/** Prewrite and commit in two requests. */
export async function write(
  store: Store,
  startTs: Timestamp,
  commitTs: Timestamp,
  mutations: readonly PrewriteMutation[],
): Promise<void> {
  await store.prewrite(prewriteOf(startTs, mutations))
  await store.commit({ keys: mutations.map(({ key }) => key), startTs, commitTs })
}

/** The value as text; undefined when absent. */
export async function read(store: Store, key: string, ts?: Timestamp): Promise<string | undefined> {
  const answer = await store.get({ key: utf8(key), ts })
  return answer.found ? text(answer.value) : undefined
}

/** What is here in this turn of the event loop; undefined: it has to be waited for, or has failed. */
export function atOnce<T>(answer: Awaitable<T>): T | undefined {
  if (!(answer instanceof Promise)) return answer
  answer.catch(() => {})
  return undefined
}

/** The code that a call failed with; `none` when it did not fail. An error without a code is rethrown. */
export async function codeOf(call: Promise<unknown> | unknown): Promise<string> {
  try {
    await call
  } catch (error) {
    if (error instanceof KvError) return error.code
    throw error
  }
  return 'none'
}

/** Refusals belong to random histories. */
export async function unlessRefused<T>(call: Promise<T>): Promise<T | undefined> {
  const LEGAL = [
    'key_locked',
    'write_conflict',
    'txn_lock_not_found',
    'commit_ts_expired',
    'already_committed',
    'ts_below_safe_point',
  ]
  try {
    return await call
  } catch (error) {
    const { code } = error as { readonly code?: string }
    if (code === undefined || !LEGAL.includes(code)) throw error
    return undefined
  }
}

export async function failureOf(call: unknown): Promise<KvError> {
  try {
    await call
  } catch (error) {
    if (error instanceof KvError) return error
    throw error
  }
  throw new Error('the call did not fail')
}

export const makeDirectory = (): Promise<string> => mkdtemp(join(tmpdir(), 'perkv-test-'))

/** Directories and stores that go away after each test. */
export function testStores(): {
  directory: () => Promise<string>
  open: (options?: Partial<LevelDbStoreOptions>) => Promise<CompleteStore>
} {
  const directories: string[] = []
  const stores: Store[] = []
  afterEach(async () => {
    for (const store of stores.splice(0)) await store.close()
    for (const directory of directories.splice(0)) await rm(directory, { recursive: true, force: true })
  })
  const directory = async (): Promise<string> => {
    const made = await makeDirectory()
    directories.push(made)
    return made
  }
  const open = async (options: Partial<LevelDbStoreOptions> = {}): Promise<CompleteStore> => {
    // Look-ups that a tapped engine can hold.
    const { directory: left, ...rest } = { ...(options.openEngine && { lookUpSlowMs: 0 }), ...options }
    const store = left === undefined ? await openTestStore(await directory(), rest) : await reopenTestStore(left, rest)
    stores.push(store)
    return store
  }
  return { directory, open }
}

/** Stores in memory that go away after each test: for tests of what stands above stores, and of nothing that one keeps. */
export function memoryStores(): { open: (options?: EngineStoreOptions) => Promise<CompleteStore> } {
  const stores: Store[] = []
  afterEach(async () => {
    for (const store of stores.splice(0)) await store.close()
  })
  const open = async (options?: EngineStoreOptions): Promise<CompleteStore> => {
    const store = await openMemoryStore(options)
    stores.push(store)
    return store
  }
  return { open }
}

export class EngineFailure extends Error {
  readonly code = 'LEVEL_IO_ERROR'
}

export interface SeenWrite {
  readonly ops: readonly EngineOp[]
  readonly sync: boolean
}

/** A real LevelDB whose writes and reopenings the test can watch, hold and fail. */
export class TappedEngine {
  readonly writes: SeenWrite[] = []
  reopens = 0
  isClosed = true
  /** Calls of the engine that are running; a held write is not. */
  running = 0
  /** Stands in for each write; `land` does what was asked. */
  onWrite: (write: SeenWrite, land: () => Promise<void>) => Promise<void> = (_, land) => land()
  /** Called before each step of an iterator. */
  onNext: () => void = () => {}
  onReopen: (reopen: () => Promise<void>) => Promise<void> = (reopen) => reopen()
  /** Rejects: the disk is full. */
  onRequireRoom: () => Promise<void> = async () => {}
  #engine: Engine | undefined

  /** The real thing underneath, without taps. */
  get engine(): Engine {
    return sealedEngine(this.raw)
  }

  /** And without checking the seals of records. */
  get raw(): Engine {
    if (this.#engine === undefined) throw new Error('not open')
    return this.#engine
  }

  readonly open = async (directory: string): Promise<Engine> => {
    const engine = await openLevelDb(directory)
    this.#engine = engine
    this.isClosed = false
    return {
      ...this.#reader(engine),
      getSync: (key) => engine.getSync(key),
      write: (ops, sync) => {
        const seen = { ops, sync }
        this.writes.push(seen)
        return this.onWrite(seen, () => this.#run(engine.write(ops, sync)))
      },
      snapshot: () => {
        const snapshot = engine.snapshot()
        return { ...this.#reader(snapshot), close: () => this.#run(snapshot.close()) }
      },
      compactRange: (start, end) => this.#run(engine.compactRange(start, end)),
      approximateSize: (start, end) => this.#run(engine.approximateSize(start, end)),
      requireRoom: () => this.onRequireRoom(),
      reopen: () => {
        this.reopens++
        return this.onReopen(async () => {
          await this.#run(engine.reopen())
          this.isClosed = false
        })
      },
      close: async () => {
        await engine.close()
        this.isClosed = true
      },
    }
  }

  #reader(reader: EngineReader): EngineReader {
    return {
      get: (key) => this.#run(reader.get(key)),
      getMany: (keys) => this.#run(reader.getMany(keys)),
      iterator: (range) => {
        const iterator = reader.iterator(range)
        return {
          nextv: async (size) => {
            this.onNext()
            return this.#run(iterator.nextv(size))
          },
          close: () => this.#run(iterator.close()),
        }
      },
    }
  }

  async #run<T>(call: Promise<T>): Promise<T> {
    this.running++
    try {
      return await call
    } finally {
      this.running--
    }
  }

  /** Fulfilled when nothing goes on any more that does not wait for the test. */
  async quiet(): Promise<void> {
    for (let quietTurns = 0; quietTurns < 2; ) {
      await new Promise((resolve) => setImmediate(resolve))
      quietTurns = this.running === 0 ? quietTurns + 1 : 0
    }
  }
}

/** Holds the writes of an engine until the test lets them go, one at a time. */
export class WriteGate {
  #held: (() => void)[] = []
  #isOpen = false

  constructor(tapped: TappedEngine, isHeld: (write: SeenWrite) => boolean = () => true) {
    tapped.onWrite = async (write, land) => {
      if (!this.#isOpen && isHeld(write)) await new Promise<void>((resolve) => this.#held.push(resolve))
      await land()
    }
  }

  get held(): number {
    return this.#held.length
  }

  /** Lets the oldest held write go. */
  release(): void {
    this.#held.shift()?.()
  }

  /** Holds nothing any more. */
  open(): void {
    this.#isOpen = true
    while (this.#held.length > 0) this.release()
  }

  shut(): void {
    this.#isOpen = false
  }
}

export interface Deferred {
  readonly promise: Promise<void>
  readonly resolve: () => void
  readonly reject: (error: unknown) => void
}
export function deferred(): Deferred {
  let resolve: () => void = () => {}
  let reject: (error: unknown) => void = () => {}
  const promise = new Promise<void>((onResolve, onReject) => {
    resolve = onResolve
    reject = onReject
  })
  return { promise, resolve, reject }
}

/** Whether a promise has settled, for a test to ask at a moment of its choice. */
export function watch<T>(promise: Promise<T>): { readonly promise: Promise<T>; readonly isSettled: () => boolean } {
  let isSettled = false
  const settle = (): void => {
    isSettled = true
  }
  promise.then(settle, settle)
  return { promise, isSettled: () => isSettled }
}

/** All microtasks of now, and those that they make. */
export const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve))
