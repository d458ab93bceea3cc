import { KvError } from '../../errors/kv-error.js'
import { ATTACHED_MAX, LOCK_TTL_MS_DEFAULT } from '../../limits.js'
import type { PrewriteRequest } from '../../percolator/api.js'
import { attachedFence } from '../../percolator/write.js'
import { TIMESTAMP_MAX, type Timestamp } from '../../timestamp.js'
import { ATTACHED_END, attachedPrefix, fenceOfAttached, keyOfAttached } from '../attached-names.js'
import type { Attachments } from '../attachments.js'
import type { Store } from '../store.js'
import type { SystemName, SystemRecords, SystemWrite } from '../system-records.js'
import type { RowAccess } from './row-access.js'

/** Records that one read asks for. */
const RECORDS_AT_A_TIME = 512
/** From one count of the keys of a grant to the next. */
const COUNT_AGAIN_MS = 1000

/** The attached keys of a store, by its system records. */
export class AttachmentCalls implements Attachments {
  readonly #rows: RowAccess
  readonly #system: SystemRecords
  readonly #prewrite: Store['prewrite']
  readonly #tso: Store['tso']

  constructor(rows: RowAccess, system: SystemRecords, { prewrite, tso }: Pick<Store, 'prewrite' | 'tso'>) {
    this.#rows = rows
    this.#system = system
    this.#prewrite = prewrite
    this.#tso = tso
  }

  async load(): Promise<readonly Timestamp[]> {
    const fences: Timestamp[] = []
    for (let from = attachedPrefix(0); ; ) {
      const [first] = await this.#rows.records.page(from, ATTACHED_END, 1)
      const fence = first && fenceOfAttached(first[0])
      if (fence === undefined) return fences
      fences.push(fence)
      this.#rows.attached.found(fence)
      from = attachedPrefix(fence + 1)
    }
  }

  has(fence: Timestamp): boolean {
    return this.#rows.attached.has(fence)
  }

  async end(fence: Timestamp, beside: readonly SystemWrite[]): Promise<void> {
    // Transactions that fixed their commit_ts under the fence hold this name until they are on disk.
    await this.#system.hold([attachedPrefix(fence)], async () => {})
    if (!this.#rows.records.isSettled)
      // One of them may have landed, and not be seen yet.
      throw new KvError('storage_unavailable', 'the outcome of a write is not known yet', {})
    const mutations: { op: 'delete'; key: Uint8Array; attachedTo: Timestamp }[] = []
    const removals: SystemWrite[] = []
    for await (const page of recordsOf(this.#rows, fence))
      for (const name of page) {
        mutations.push({ op: 'delete', key: keyOfAttached(name), attachedTo: fence })
        removals.push({ name, value: undefined })
      }
    const [first] = mutations
    if (first === undefined) await this.#system.write(beside)
    else {
      const request: PrewriteRequest = {
        mutations,
        primary: first.key,
        startTs: await this.#tso(1),
        lockTtl: LOCK_TTL_MS_DEFAULT,
        tryOnePc: true,
        linearizable: true,
        skipConstraintCheck: true, // It deletes whatever version is attached. A key that others write all the time would conflict for ever.
      }
      await this.#prewrite(request, () => [...removals, ...beside])
    }
    this.#rows.attached.forget(fence)
  }
}

/**
 * Needs the latch of the grant. Counts its keys, unless that has just been done, where `more` of them might be too many, and removes the records of
 * keys that are not attached to it any more.
 */
export async function countAttached(rows: RowAccess, fence: Timestamp, more: number): Promise<void> {
  const known = rows.attached.atMost(fence)
  if (known !== undefined && known + more <= ATTACHED_MAX) return
  if (!rows.records.isSettled) return // The write is going to be refused.
  if (known !== undefined && performance.now() - rows.attached.countedAtMs(fence) < COUNT_AGAIN_MS) return
  let count = 0
  for await (const page of recordsOf(rows, fence)) {
    const histories = await Promise.all(page.map((name) => rows.historyOf(keyOfAttached(name), TIMESTAMP_MAX, 'data')))
    const stale = page.filter((_, i) => attachedFence(histories[i] ?? []) !== fence)
    count += page.length - stale.length
    if (stale.length > 0) await remove(rows, stale)
  }
  rows.attached.counted(fence, count, performance.now())
}

function remove(rows: RowAccess, names: readonly SystemName[]): Promise<void> {
  const beside = names.map((name) => ({ name, value: undefined }))
  const decide = () => ({ ok: true, value: undefined, mutations: [], beside }) as const
  return rows.update({ keys: [], startTs: 0, depth: 'none', decide })
}

async function* recordsOf(rows: RowAccess, fence: Timestamp): AsyncGenerator<readonly SystemName[], void> {
  const end = attachedPrefix(fence + 1)
  for (let from = attachedPrefix(fence); ; ) {
    const page = await rows.records.page(from, end, RECORDS_AT_A_TIME)
    yield page.map(([name]) => name)
    if (page.length < RECORDS_AT_A_TIME) return
    from = `${page.at(-1)?.[0] ?? from}\0` as SystemName
  }
}
