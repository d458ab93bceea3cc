import { pairBytes } from '../bytes/answer-size.js'
import { KvError } from '../errors/kv-error.js'
import type { ValuedPair } from '../percolator/api.js'
import type { Mutation } from '../percolator/row.js'
import type { Timestamp } from '../timestamp.js'
import type { RestoreProgress, RestoreSource, Upkeep } from './store.js'

export interface Begun {
  readonly run: RestoreProgress
}

export interface RestoreSteps<B extends Begun> {
  /**
   * Refuses all other calls from now on, if the store is empty, or holds a part of the same backup, after which the restore
   * continues.
   * @param restart first removes what another restore has left.
   * @throws KvError `precondition_failed`
   */
  begin(source: RestoreSource, restart: boolean): Promise<B>
  put(pairs: readonly ValuedPair[], before: B, progress: RestoreProgress): Promise<B>
  /**
   * Admits other calls again. Raises the safe point above transactions that began on the empty store, so that they cannot go on.
   */
  complete(last: B): Promise<void>
}

export class Restoration<B extends Begun> {
  readonly #steps: RestoreSteps<B>
  #isRunning = false

  constructor(steps: RestoreSteps<B>) {
    this.#steps = steps
  }

  readonly restore: Upkeep['restore'] = async (source, blocks, restart) => {
    if (this.#isRunning) throw new KvError('storage_unavailable', 'another restore is running', {})
    this.#isRunning = true
    let begun: B | undefined
    let writing: Promise<B> | undefined
    try {
      for await (const pairs of blocks) {
        // The next block is read and verified while this one is written.
        begun = (await writing) ?? begun ?? (await this.#steps.begin(source, restart))
        writing = this.#put(pairs, begun)
        writing.catch(() => {}) // It is awaited with the next block or after the loop.
      }
      const last = (await writing) ?? (await this.#steps.begin(source, restart))
      await this.#steps.complete(last)
      const { id, ts, lastKey, pairs, bytes } = last.run
      return { id, ts, lastKey, pairs, bytes }
    } finally {
      await writing?.catch(() => {})
      this.#isRunning = false
    }
  }

  async #put(pairs: readonly ValuedPair[], before: B): Promise<B> {
    const { id, ts, lastKey, pairs: count, bytes } = before.run
    const fresh = lastKey === undefined ? pairs : pairs.filter(({ key }) => Buffer.compare(key, lastKey) > 0)
    if (fresh.length === 0) return before
    return this.#steps.put(fresh, before, {
      id,
      ts,
      lastKey: fresh.at(-1)?.key,
      pairs: count + fresh.length,
      bytes: fresh.reduce((sum, pair) => sum + pairBytes(pair), bytes),
    })
  }
}

/** The mutations that a commit of the pair would make. The start_ts is unknown, so it is `commitTs - 1`. */
export function restoredMutations(
  { key, value, commitTs, expireTs = 0 }: ValuedPair,
  shortValueBytesMax: number,
): Mutation[] {
  const startTs = commitTs - 1
  const isShort = value.length <= shortValueBytesMax
  const write = {
    type: 'put',
    startTs,
    commitTs,
    shortValue: isShort ? value : undefined,
    expireTs,
    leaseFence: 0,
    isProtected: false,
    hasOverlappedRollback: false,
  } as const
  const record: Mutation = { type: 'put-write', key, write }
  return isShort ? [record] : [record, { type: 'put-value', key, startTs, value }]
}

/** @param commitTs of the newest version of the key; 0: it is absent. */
export function notRestorable(detail: string, key: Uint8Array, commitTs: Timestamp): KvError<'precondition_failed'> {
  return new KvError('precondition_failed', detail, { key, commitTs })
}

export function leftOfAnother({ ts }: RestoreSource): string {
  return `the store holds a part of another backup, of ts ${ts}: continue with that one, or restore with restart=true`
}
