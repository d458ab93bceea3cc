import { ConnectionError, isKvError, isRetryable, Undetermined } from 'perkv/client'
import { Copy, Moved } from './copy.mjs'

/** @typedef {import('perkv/client').Db} Db */
/** @typedef {import('./copy.mjs').ChangedTxn} ChangedTxn */

/** Changes of one transaction of the copy, and of what waits for it. */
const CHANGES_MAX = 1000
/** Where nothing changes, the position is stored so often. */
const IDLE_MS = 5000
const PAUSE_MS = 200

const sleep = (/** @type {number} */ ms) => new Promise((resolve) => setTimeout(resolve, ms))

/**
 * Keeps the copy of a prefix, until the signal is aborted. What fails for now is tried again, from the state that is stored.
 * @param {Db} source @param {Db} target @param {string} prefix @param {AbortSignal} signal @param {(message: string) => void} log
 */
export async function mirror(source, target, prefix, signal, log) {
  while (!signal.aborted) {
    try {
      await followOnce(source, await Copy.open(target, prefix), prefix, signal, log)
    } catch (error) {
      if (!isPassing(error)) throw error
      log(messageOf(error))
      await sleep(PAUSE_MS)
    }
  }
}

/**
 * Follows the source from the stored state.
 * @param {Db} source @param {Copy} copy @param {string} prefix @param {AbortSignal} signal @param {(message: string) => void} log
 */
async function followOnce(source, copy, prefix, signal, log) {
  const { position } = copy.state
  log(position === undefined ? 'begins with a snapshot' : `goes on at ${position}`)
  const failed = new AbortController()
  const writer = new Writer(copy, failed)
  const changes = source.changes({
    ...{ prefix, as: /** @type {const} */ ('bytes'), snapshot: position === undefined, position },
    signal: AbortSignal.any([signal, failed.signal]),
    onResolved: (ts) => writer.resolved(ts),
    onError: (error) => log(`the source is away: ${messageOf(error)}`),
  })
  try {
    for await (const txn of changes) await writer.add(txn)
  } catch (error) {
    if (!isKvError(error, 'ts_below_safe_point')) throw error
    log('the source has collected changes that the copy does not have')
    await writer.end()
    await copy.beginAnew()
  }
  await writer.end()
}

/** Commits one transaction of the copy after the other. Each takes everything that has come during the one before. */
class Writer {
  #copy
  #failed
  /** @type {ChangedTxn[]} */
  #waiting = []
  #changes = 0
  #committedAt = performance.now()
  /** @type {Promise<void> | undefined} */
  #running
  /** @type {unknown} */
  #error

  /** @param {Copy} copy @param {AbortController} failed aborted when a commit has failed */
  constructor(copy, failed) {
    this.#copy = copy
    this.#failed = failed
  }

  /** @param {ChangedTxn} txn */
  async add(txn) {
    this.#waiting.push(txn)
    this.#changes += txn.changes.length
    this.#start()
    if (this.#changes >= CHANGES_MAX) await this.#running
  }

  /** @param {number} ts */
  async resolved(ts) {
    if (this.#running !== undefined || performance.now() - this.#committedAt < IDLE_MS) return
    this.#committedAt = performance.now()
    await this.#copy.moveTo(ts)
  }

  /** @throws the error of a commit */
  async end() {
    await this.#running
    if (this.#error !== undefined) throw this.#error
  }

  #start() {
    this.#running ??= this.#commitAll()
      .catch((error) => {
        this.#error = error
        this.#failed.abort()
      })
      .finally(() => {
        this.#running = undefined
      })
  }

  async #commitAll() {
    while (this.#waiting.length > 0 && this.#error === undefined) {
      const txns = this.#waiting
      this.#waiting = []
      this.#changes = 0
      await this.#copy.apply(txns)
      this.#committedAt = performance.now()
    }
  }
}

/** @param {unknown} error */
function messageOf(error) {
  return error instanceof Error ? error.message : String(error)
}

/** Whether another try may succeed. @param {unknown} error */
function isPassing(error) {
  if (error instanceof ConnectionError || error instanceof Undetermined || error instanceof Moved) return true
  return isRetryable(error) || isKvError(error, 'overloaded') || isKvError(error, 'storage_unavailable')
}
