import { Db } from '../client/db.js'
import { Database } from '../database/database.js'
import { CACHE_BYTES_DEFAULT, DEFAULT_LIMITS, GC_LIFE_TIME_MS_DEFAULT } from '../limits.js'
import { AnswerBudget } from '../store/answer-budget.js'
import { makeDirectory, unmakeDirectory } from '../store/leveldb/directory/make-directory.js'
import { openLevelDbStore, openMemoryStore } from '../store/leveldb/leveldb-store.js'
import type { Store } from '../store/store.js'
import { EmbeddedBackend } from './embedded-backend.js'
import { claimDirectory } from './open-directories.js'
import { type OpenOptions, openOptions } from './open-options.js'

/** Longest time between two collections of old versions. */
const GC_INTERVAL_MS_MAX = 10 * 60 * 1000

const IN_MEMORY = ':memory:'

/**
 * Opens the database in a directory, and creates it if the directory has none. Only one process at a time may have a directory
 * open, servers included.
 * @param directory a path, or `:memory:` for a new database in memory, which is lost at `close`.
 * @throws TypeError for an unknown option or a wrong value; DataDirectoryError when the directory is in use, damaged, of a newer
 *   format, or not PerKV's.
 */
export async function open(directory: string, options: OpenOptions = {}): Promise<Db> {
  return new Db(await openBackend(directory, options), options.lockWaitMs)
}

/** @internal */
export async function openBackend(directory: string, options: OpenOptions = {}): Promise<EmbeddedBackend> {
  openOptions(options)
  if (typeof directory !== 'string' || directory === '') throw new TypeError('the directory must be a path')
  const onWarning = options.onWarning ?? warn
  if (directory === IN_MEMORY) {
    const { cacheBytesMax } = options
    const store = await openMemoryStore({ answers: answerBudget(), cacheBytesMax, onClockStep: onWarning })
    return backendOn(store, options, () => {})
  }
  const made = await makeDirectory(directory)
  let giveBack: (() => void) | undefined
  let store: Store | undefined
  try {
    giveBack = await claimDirectory(directory)
    store = await openStore(directory, options)
    return await backendOn(store, options, giveBack)
  } catch (error) {
    await store?.close()
    await unmakeDirectory(directory, made)
    giveBack?.()
    throw error
  }
}

function openStore(directory: string, options: OpenOptions): Promise<Store> {
  const { durability = 'sync', cacheBytesMax = CACHE_BYTES_DEFAULT, onWarning = warn } = options
  const { blockCacheBytes, compression } = options
  return openLevelDbStore({
    directory,
    durability,
    cacheBytesMax,
    tuning: { blockCacheBytes, compression },
    answers: answerBudget(),
    onClockStep: onWarning,
    onTimestamps: onWarning,
    onWritable: (message) => onWarning(message),
    onEnd: (message) => onWarning(`${message}; all calls are refused from now on`),
  })
}

async function backendOn(store: Store, options: OpenOptions, onClosed: () => void): Promise<EmbeddedBackend> {
  const { versionsMs = GC_LIFE_TIME_MS_DEFAULT, onWarning = warn } = options
  const { keyBytesMax = DEFAULT_LIMITS.keyBytesMax, valueBytesMax = DEFAULT_LIMITS.valueBytesMax } = options
  const limits = { ...DEFAULT_LIMITS, keyBytesMax, valueBytesMax }
  const database = await Database.open(store, {
    limits,
    gc: {
      lifeTimeMs: versionsMs === Number.POSITIVE_INFINITY ? 0 : versionsMs,
      intervalMs: Math.min(versionsMs, GC_INTERVAL_MS_MAX),
    },
    onError: (message, error) => {
      if (!store.upkeep.isReported(error))
        onWarning(`${message}: ${error instanceof Error ? error.message : String(error)}`)
    },
  })
  return new EmbeddedBackend(database, limits, onClosed)
}

/** Without a limit on the total: the program itself decides how many reads run at once. */
function answerBudget(): AnswerBudget {
  return new AnswerBudget({ ...DEFAULT_LIMITS, answersBytesMax: Number.POSITIVE_INFINITY })
}

function warn(message: string): void {
  process.emitWarning(message, 'PerkvWarning')
}
