import { rm } from 'node:fs/promises'
import { afterEach } from 'vitest'
import { keyText } from '../../src/bytes/key-text.js'
import { Database } from '../../src/database/database.js'
import { DEFAULT_LIMITS } from '../../src/limits.js'
import { attachedEnd, attachedPrefix } from '../../src/percolator/codec/attached-key.js'
import type { LeaseGuard } from '../../src/percolator/commit-effects.js'
import { openLevelDbStore } from '../../src/store/leveldb/leveldb-store.js'
import type { CompleteStore, Store } from '../../src/store/store.js'
import type { Timestamp } from '../../src/timestamp.js'
import type { Op } from '../../src/txn/op.js'
import { makeDirectory, type TappedEngine, text, utf8 } from '../store/support.js'
import { TwoClocks } from './support.js'

/** A database with leases and keys that are attached to them, and clocks that stand still. */
export class Attaching {
  readonly clocks = new TwoClocks()
  readonly errors: unknown[] = []
  database!: Database

  private constructor(
    readonly directory: string,
    readonly tapped: TappedEngine | undefined,
  ) {}

  static async open(tapped?: TappedEngine): Promise<Attaching> {
    const attaching = new Attaching(await makeDirectory(), tapped)
    await attaching.start()
    opened.push(attaching)
    return attaching
  }

  async start(): Promise<void> {
    const onError = (_: string, error: unknown): void => void this.errors.push(error)
    this.database = await Database.open(await this.#openStore(), { limits: DEFAULT_LIMITS, onError })
  }

  async close(): Promise<void> {
    await this.database.close()
    opened.splice(opened.indexOf(this), 1)
    await rm(this.directory, { recursive: true, force: true })
  }

  async restart(): Promise<void> {
    await this.database.close()
    await this.start()
  }

  #openStore(): Promise<CompleteStore> {
    const { now, monotonicNow } = this.clocks
    const { tapped, directory } = this
    return openLevelDbStore({
      directory,
      durability: 'async',
      now,
      monotonicNow,
      ...(tapped && { openEngine: tapped.open, lookUpSlowMs: 0 }),
    })
  }

  async grant(name: string, ttlMs = 1000): Promise<Timestamp> {
    return (await this.database.leases.put(name, { holder: 'me', ttlMs, waitMs: 0 })).fence
  }

  pass(ms: number): void {
    this.clocks.pass(ms)
    this.database.leases.look()
  }

  /** One transaction. @returns its commit_ts. */
  async run(ops: readonly Op[], leases: readonly LeaseGuard[] = []): Promise<Timestamp> {
    const commitEffects = leases.length === 0 ? undefined : { leases }
    const request = { checks: [], ops, commitEffects, maxRetries: 0, lockWaitMs: 0 }
    return (await this.database.transact(request)).answer.commitTs ?? 0
  }

  attach(key: string, lease: string, fence: Timestamp, value = 'attached'): Promise<Timestamp> {
    return this.run([{ op: 'put', key: utf8(key), value: utf8(value), lease }], [{ lease, fence }])
  }

  put(key: string, value = 'plain'): Promise<Timestamp> {
    return this.run([{ op: 'put', key: utf8(key), value: utf8(value) }])
  }

  async keys(): Promise<string[]> {
    const range = { start: undefined, end: undefined, reverse: false, keyOnly: true, lockWaitMs: 0 }
    const { pairs } = await this.database.scan({ ...range, limit: 20_000, bytesMax: 2 ** 30 })
    return pairs.map(({ key }) => text(key))
  }

  /** The fence that the present version of a key is attached to. */
  async fenceOf(key: string): Promise<Timestamp | undefined> {
    const found = await this.database.store.get({ key: utf8(key) })
    return found.found ? found.leaseFence : undefined
  }

  /** Number of the rows of attached keys. */
  async rows(): Promise<number> {
    return (await attachedRows(this.database.store)).size
  }
}

/** The rows of keys that may be attached, by `keyText`. */
export async function attachedRows(store: Store): Promise<ReadonlySet<string>> {
  const range = { start: attachedPrefix(0), end: attachedEnd(), limit: 20_000, isOfServer: true, keyOnly: true }
  const { pairs } = await store.scan({ ...range, ts: await store.readTs() })
  return new Set(pairs.map(({ key }) => keyText(key)))
}

const opened: Attaching[] = []
afterEach(async () => {
  for (const attaching of [...opened]) await attaching.close()
})
