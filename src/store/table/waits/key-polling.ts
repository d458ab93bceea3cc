import { keyText } from '../../../bytes/key-text.js'
import { sleep } from '../../../event-loop/sleep.js'
import { decodeLock } from '../../../percolator/codec/lock.js'
import { lockInfo } from '../../../percolator/lock-info.js'
import type { KeyWatcher } from '../../change-log.js'
import { LOCK_COLUMN, REVISION_COLUMN } from '../layout/layout.js'
import { keyOfRow, rowKeyOf } from '../layout/row-keys.js'
import type { Family, Table } from '../layout/table.js'
import { WakeUps } from '../layout/wake-ups.js'
import type { DeadLocks } from './dead-locks.js'
import { keyTopic } from './key-topic.js'

const POLL_MS = 500
const ROWS_AT_A_TIME = 1000
const ABSENT = ''

/**
 * Reports keys that servers say to have changed, and polls rows, because some changes are not told of. Every change of a row gives
 * it another revision; a pass reads 16 bytes per key. It also sees locks, even those that reads ignore, and ends dead ones.
 */
export class KeyPolling {
  readonly #table: Pick<Table, 'rows'>
  readonly #dead: Pick<DeadLocks, 'met'>
  readonly #wakeUps: WakeUps
  readonly #closed = new AbortController()

  constructor(table: Pick<Table, 'rows'>, dead: Pick<DeadLocks, 'met'>, wakeUps = new WakeUps()) {
    this.#table = table
    this.#dead = dead
    this.#wakeUps = wakeUps
  }

  /** Reports each key once after it was first named, and then whenever its row has changed. @returns a function that ends it. */
  watch(watcher: Pick<KeyWatcher, 'keys' | 'changed'>): () => void {
    const end = new AbortController()
    void this.#watch(watcher, AbortSignal.any([end.signal, this.#closed.signal]))
    return () => end.abort()
  }

  close(): void {
    this.#closed.abort()
  }

  async #watch(watcher: Pick<KeyWatcher, 'keys' | 'changed'>, signal: AbortSignal): Promise<void> {
    let known: ReadonlyMap<string, string> = new Map()
    const listening = new Map<string, () => void>()
    signal.addEventListener('abort', () => {
      for (const end of listening.values()) end()
    })
    for (let rests = 1; ; rests++) {
      try {
        await sleep(POLL_MS, signal)
      } catch {
        return
      }
      const hasNew = this.#listen(watcher, listening)
      if (!hasNew && rests < this.#wakeUps.patience(POLL_MS)) continue
      rests = 0
      known = await this.#look(watcher, known, signal)
    }
  }

  /** @param listening what ends the listening for a key, by its text. @returns true when there are new keys. */
  #listen(watcher: Pick<KeyWatcher, 'keys' | 'changed'>, listening: Map<string, () => void>): boolean {
    const watched = new Set<string>()
    let hasNew = false
    for (const key of watcher.keys()) {
      const text = keyText(key)
      watched.add(text)
      if (listening.has(text)) continue
      hasNew = true
      listening.set(
        text,
        this.#wakeUps.listen(keyTopic(key), () => watcher.changed(Buffer.from(text, 'latin1'))),
      )
    }
    for (const [text, end] of listening) {
      if (watched.has(text)) continue
      end()
      listening.delete(text)
    }
    return hasNew
  }

  async #look(
    watcher: Pick<KeyWatcher, 'keys' | 'changed'>,
    known: ReadonlyMap<string, string>,
    signal: AbortSignal,
  ): Promise<ReadonlyMap<string, string>> {
    const keys = [...watcher.keys()]
    const seen = new Map<string, string>()
    for (let from = 0; from < keys.length; from += ROWS_AT_A_TIME) {
      const some = keys.slice(from, from + ROWS_AT_A_TIME)
      const revisions = await this.#revisionsOf(some)
      if (signal.aborted) return seen
      for (const key of some) {
        const text = keyText(key)
        const before = known.get(text)
        // The engine does not answer: the next pass finds out.
        const now = revisions === undefined ? before : (revisions.get(keyText(rowKeyOf(key))) ?? ABSENT)
        if (now === undefined) continue
        seen.set(text, now)
        if (now !== before) watcher.changed(key)
      }
    }
    return seen
  }

  #meet(key: Uint8Array, lock: Buffer | undefined): void {
    if (lock === undefined) return
    try {
      this.#dead.met(lockInfo(key, decodeLock(lock)))
    } catch {
      // The lock is damaged, which readers of the key report.
    }
  }

  /** By the text of the row's key. @returns undefined when the engine does not answer. */
  async #revisionsOf(keys: readonly Uint8Array[]): Promise<ReadonlyMap<string, string> | undefined> {
    try {
      const rows = await this.#table.rows({ keys: keys.map(rowKeyOf), columns: [LOCK_COLUMN, REVISION_COLUMN] })
      const revisions = new Map<string, string>()
      for (const { key, cells } of rows) {
        const of = (family: Family): Buffer | undefined => cells.find((cell) => cell.family === family)?.value
        revisions.set(keyText(key), of('v')?.toString('latin1') ?? ABSENT)
        this.#meet(keyOfRow(key), of('l'))
      }
      return revisions
    } catch {
      return undefined
    }
  }
}
