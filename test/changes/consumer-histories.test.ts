import { expect, test } from 'vitest'
import { Changes } from '../../src/changes/changes.js'
import { Consumers } from '../../src/changes/consumers.js'
import { LockResolver } from '../../src/coordinator/lock-resolver.js'
import { collectGarbage } from '../../src/gc/collect-garbage.js'
import { DEFAULT_LIMITS } from '../../src/limits.js'
import type { Store } from '../../src/store/store.js'
import type { Timestamp } from '../../src/timestamp.js'
import { Random } from '../anomalies/random.js'
import { codeOf, prewriteOf, put, TestClock, testStores, text, utf8 } from '../store/support.js'

const stores = testStores()
const RANGE = { prefix: utf8('doc/') }
const STEPS = 150

async function openChanges(store: Store): Promise<Changes> {
  const onError = (error: unknown): void => {
    throw error
  }
  const limits = DEFAULT_LIMITS
  const consumers = await Consumers.open(store, { limits, onError })
  return new Changes(store, { limits, consumers, resolver: new LockResolver(store), onError })
}

/** Reads pages from where it is, and commits each with the step of the consumer. A refusal sets it back to the position. */
class Instance {
  #from: Timestamp | undefined
  #page: { readonly keys: readonly string[]; readonly ts: Timestamp } | undefined

  /** @returns what it has applied by a commit; undefined when it has only read, or was refused. */
  async step(
    store: Store,
    changes: Changes,
    limit: number,
    acked: Timestamp,
  ): Promise<{ keys: readonly string[]; ts: Timestamp } | undefined> {
    if (this.#from === undefined) {
      this.#from = (await changes.consumers.get('copy')).position
      this.#page = undefined
    }
    if (this.#page === undefined) {
      const asked = changes.page({ consumer: 'copy', sinceTs: this.#from, limit })
      const page = await asked.catch((error) => {
        expect(error).toMatchObject({ code: 'ts_below_safe_point' })
        // The other instance has gone on, else nothing of it may have been collected.
        expect(this.#from).toBeLessThan(acked)
        this.#from = undefined
      })
      if (page === undefined) return undefined
      const { txns, nextTs } = page
      this.#page = { keys: txns.flatMap((txn) => txn.changes.map(({ key }) => text(key))), ts: nextTs }
      return undefined
    }
    const applied = this.#page
    const commitEffects = { positions: [{ consumer: 'copy', from: this.#from, ts: applied.ts }] }
    const request = { tryOnePc: true, linearizable: true, commitEffects }
    const code = await codeOf(store.prewrite(prewriteOf(await store.tso(1), [put('copy')], request)))
    expect(['none', 'write_conflict']).toContain(code)
    this.#page = undefined
    this.#from = code === 'none' ? applied.ts : undefined
    return code === 'none' ? applied : undefined
  }

  /** As after a crash. */
  restart(): void {
    this.#from = undefined
  }
}

test.each(Array.from({ length: 12 }, (_, seed) => seed))(
  'two instances apply each change once, through moves of the server, resets, collections and restarts: %i',
  async (seed) => {
    const random = new Random(seed)
    const clock = new TestClock()
    const store = await stores.open({ now: clock.now, monotonicNow: clock.now })
    let changes = await openChanges(store)
    const { consumers } = changes
    let acked = (await consumers.put('copy', { range: RANGE })).state.position
    const first = acked
    const written: { key: string; commitTs: Timestamp }[] = []
    const instances = [new Instance(), new Instance()]
    const lock = { startTs: 0 }

    async function write(key: string): Promise<void> {
      const request = { tryOnePc: true, linearizable: true }
      const { onePcCommitTs = 0 } = await store.prewrite(prewriteOf(await store.tso(1), [put(key)], request))
      if (key.startsWith('doc/')) written.push({ key, commitTs: onePcCommitTs })
    }

    for (let step = 0; step < STEPS; step++) {
      clock.ms += random.below(3000)
      const what = random.below(20)
      if (what < 5) await write(`doc/${step}`)
      else if (what < 7) await write(`other/${step}`)
      else if (what < 14) {
        const applied = await instances[random.below(2)]?.step(store, changes, 1 + random.below(4), acked)
        if (applied !== undefined) {
          const due = written.filter(({ commitTs }) => commitTs > acked && commitTs <= applied.ts)
          expect(applied.keys).toEqual(due.map(({ key }) => key))
          acked = applied.ts
        }
      } else if (what < 16) await changes.consumers.moveOn()
      else if (what === 16) {
        // Only to where nothing was collected.
        const back = written[random.below(written.length || 1)]?.commitTs ?? first
        const code = await codeOf(changes.consumers.reset('copy', back))
        if (code === 'none') acked = back
        else expect(code).toBe('ts_below_safe_point')
      } else if (what === 17) {
        const [holder] = changes.consumers.holders()
        // As every collection of a server, not above a lock.
        const safePoint = Math.min(holder?.ts ?? 0, lock.startTs === 0 ? Number.MAX_SAFE_INTEGER : lock.startTs - 1)
        if (safePoint > store.safePoint) await collectGarbage(store, safePoint)
        expect(await changes.consumers.get('copy')).toMatchObject({ isLost: false })
      } else if (what === 18) {
        await changes.close()
        await changes.consumers.close()
        changes = await openChanges(store)
      } else if (lock.startTs === 0) {
        lock.startTs = await store.tso(1)
        await store.prewrite(prewriteOf(lock.startTs, [put('doc/locked')], { lockTtl: 1e9 }))
      } else {
        const commitTs = await store.tso(1)
        await store.commit({ keys: [utf8('doc/locked')], startTs: lock.startTs, commitTs })
        written.push({ key: 'doc/locked', commitTs })
        lock.startTs = 0
      }
      if (random.below(15) === 0) instances[random.below(2)]?.restart()
      const { position } = await changes.consumers.get('copy')
      expect(written.filter(({ commitTs }) => commitTs > acked && commitTs <= position)).toEqual([])
    }
    await changes.close()
    await changes.consumers.close()
  },
)
