import { open, readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { syncDirectory } from '../directory/sync-directory.js'
import type { Engine } from './engine.js'

const SYNC_AFTER_MS = 1000
/** Writes wait for the disk rather than leave older ones unsynced for longer. */
const UNSYNCED_MS_MAX = 2000

/** The prefix `LEVEL_` of the code makes this an error of the engine. */
class SyncFailed extends Error {
  override readonly name = 'SyncFailed'
  readonly code = 'LEVEL_SYNC_FAILED'
}

/**
 * Fsyncs the logs a second after the first write that is not synced. The sync flag of a later write would not do: LevelDB begins a
 * new log every few megabytes, and syncs only the newest, so a crash could take the end of the one before and leave later writes.
 */
class LogSyncs {
  readonly #sync: () => Promise<void>
  /** When the oldest write was answered that no fsync covers, neither a finished one nor the one that runs. */
  #oldestMs: number | undefined
  #timer: NodeJS.Timeout | undefined
  #running: Promise<void> | undefined
  #runningOldestMs = 0
  #failure: SyncFailed | undefined

  constructor(sync: () => Promise<void>) {
    this.#sync = sync
  }

  /** @throws SyncFailed after a failed fsync. A second one would report success for pages that the system has given up. */
  async require(): Promise<void> {
    while (this.#running !== undefined && performance.now() - this.#runningOldestMs > UNSYNCED_MS_MAX)
      await this.#running
    if (this.#failure !== undefined) throw this.#failure
  }

  wrote(): void {
    if (this.#oldestMs !== undefined) return
    this.#oldestMs = performance.now()
    if (this.#running === undefined) this.#timer = setTimeout(() => this.#begin(), SYNC_AFTER_MS).unref()
  }

  /** Fulfilled when nothing runs and all writes are synced, or an fsync has failed. */
  async settle(): Promise<void> {
    while (this.#running !== undefined || this.#oldestMs !== undefined) {
      if (this.#running === undefined) this.#begin()
      await this.#running
    }
  }

  forget(): void {
    this.#failure = undefined
  }

  #begin(): void {
    clearTimeout(this.#timer)
    this.#runningOldestMs = this.#oldestMs ?? performance.now()
    this.#oldestMs = undefined
    this.#running = this.#run()
  }

  async #run(): Promise<void> {
    try {
      await this.#sync()
    } catch (error) {
      this.#failure ??= new SyncFailed(`fsync: ${error instanceof Error ? error.message : error}`, { cause: error })
    }
    this.#running = undefined
    if (this.#oldestMs === undefined) return
    const leftMs = this.#oldestMs + SYNC_AFTER_MS - performance.now()
    if (leftMs <= 0) this.#begin()
    else this.#timer = setTimeout(() => this.#begin(), leftMs).unref()
  }
}

/**
 * Writes without an fsync, which follows within a second. After a failed one all writes fail until the engine is opened again, which
 * makes synced tables of the logs.
 * @param sync replaced by tests.
 */
export function syncedEachSecond(engine: Engine, directory: string, sync = syncLogs): Engine {
  const syncs = new LogSyncs(() => sync(directory))
  return {
    ...engine,
    async write(ops, isSynced) {
      await syncs.require()
      await engine.write(ops, isSynced)
      if (!isSynced) syncs.wrote()
    },
    async reopen() {
      await syncs.settle()
      await engine.reopen()
      syncs.forget()
    },
    async close() {
      await syncs.settle()
      await engine.close()
    },
  }
}

async function syncLogs(directory: string): Promise<void> {
  // Oldest first, so that later writes are not on disk without earlier ones.
  const logs = (await readdir(directory)).filter((name) => name.endsWith('.log')).sort(byNumber)
  for (const name of logs) await syncLog(join(directory, name))
  await syncDirectory(directory)
}

function byNumber(one: string, other: string): number {
  return Number.parseInt(one, 10) - Number.parseInt(other, 10)
}

async function syncLog(path: string): Promise<void> {
  let file: Awaited<ReturnType<typeof open>>
  try {
    file = await open(path, 'r+') // Windows syncs only what is open for writing.
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return // A synced table has its records by now.
    throw error
  }
  try {
    await file.datasync()
  } finally {
    await file.close()
  }
}
