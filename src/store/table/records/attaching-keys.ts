import { randomBytes } from 'node:crypto'
import { invalid } from '../../../errors/kv-error.js'
import { printKey } from '../../../errors/print-key.js'
import { ATTACHED_MAX } from '../../../limits.js'
import type { PrewriteRequest } from '../../../percolator/api.js'
import { attachedFence } from '../../../percolator/write.js'
import { TIMESTAMP_MAX, type Timestamp } from '../../../timestamp.js'
import { ATTACHED_END, attachedName, attachedPrefix, fenceOfAttached, keyOfAttached } from '../../attached-names.js'
import type { HeldLeases } from '../../held-leases.js'
import type { SystemName } from '../../system-records.js'
import { ROW_KEY_BYTES_MAX, rowKeyOfSystem } from '../layout/row-keys.js'
import type { RowTable } from '../rows/row-table.js'
import type { SystemRows } from './system-rows.js'

/** Grants whose keys this process has counted. */
const COUNTED_MAX = 1000
/** From one count of the keys of a grant to the next. */
const COUNT_AGAIN_MS = 1000
/** Unlike every other value of the same record. */
const NONCE_BYTES = 12
/** Of keys that may be attached. */
const ROWS_AT_A_TIME = 64

interface Count {
  atMost: number
  readonly countedAtMs: number
}

/**
 * Keys that are attached to leases. The record of a key is written when its lock stands, and before the lease is judged. So it may stand for a key
 * that was not attached in the end, and none is missing.
 */
export class AttachingKeys {
  readonly #system: SystemRows
  readonly #leases: HeldLeases
  readonly #rows: RowTable
  /** Records by the fences of their grants, as far as this process knows. The oldest is dropped first. */
  readonly #counts = new Map<Timestamp, Count>()

  constructor(system: SystemRows, leases: HeldLeases, rows: RowTable) {
    this.#rows = rows
    this.#system = system
    this.#leases = leases
  }

  /** @returns the fences of all grants that have records. */
  async fences(): Promise<readonly Timestamp[]> {
    const fences: Timestamp[] = []
    for (let from = attachedPrefix(0); ; ) {
      const [first] = await this.#system.page(from, ATTACHED_END, 1)
      const fence = first && fenceOfAttached(first[0])
      if (fence === undefined) return fences
      fences.push(fence)
      from = attachedPrefix(fence + 1)
    }
  }

  /**
   * A prewrite that attaches keys: writes their records after their locks stand, and before its answer.
   * @throws KvError `invalid_argument`; `precondition_failed` if a lease is lost.
   */
  async around<T>(request: PrewriteRequest, prewrite: () => Promise<T>): Promise<T> {
    const names = await this.#namesOf(request)
    const answer = await prewrite()
    await this.#system.write(names.map((name) => ({ name, value: randomBytes(NONCE_BYTES) })))
    return answer
  }

  async #namesOf({ mutations, riders: { leases = [] } = {} }: PrewriteRequest): Promise<readonly SystemName[]> {
    const added = new Map<Timestamp, SystemName[]>()
    for (const { key, leaseFence = 0 } of mutations) {
      if (leaseFence === 0) continue
      const name = attachedName(leaseFence, key)
      if (rowKeyOfSystem(name).length > ROW_KEY_BYTES_MAX)
        throw invalid('lease', `the key ${printKey(key)} is too long to be attached to a lease on Bigtable`)
      const names = added.get(leaseFence)
      if (names === undefined) added.set(leaseFence, [name])
      else names.push(name)
    }
    for (const [fence, names] of added) {
      const index = leases.findIndex((rider) => rider.fence === fence)
      const rider = leases[index]
      if (rider === undefined) continue // The prewrite is refused.
      await this.#leases.attaches({ index, ...rider })
      await this.#requireRoom(fence, names.length)
    }
    return [...added.values()].flat()
  }

  /** Counts the keys of other processes too, where there might be too many. @throws KvError `invalid_argument` */
  async #requireRoom(fence: Timestamp, more: number): Promise<void> {
    let count = this.#counts.get(fence)
    const isFull = (): boolean => count === undefined || count.atMost + more > ATTACHED_MAX
    const nowMs = performance.now()
    if (isFull() && (count === undefined || nowMs - count.countedAtMs >= COUNT_AGAIN_MS)) {
      let atMost = (await this.#system.list(attachedPrefix(fence))).size
      if (atMost + more > ATTACHED_MAX) atMost = await this.removeStale(fence)
      count = { atMost, countedAtMs: nowMs }
      this.#counts.set(fence, count)
      if (this.#counts.size > COUNTED_MAX)
        for (const oldest of this.#counts.keys()) if (this.#counts.delete(oldest)) break
    }
    if (count === undefined || isFull())
      throw invalid('lease', `more than ${ATTACHED_MAX} keys would be attached to the lease of the fence ${fence}`)
    count.atMost += more
  }

  /**
   * Removes the records of keys that are not attached to the grant any more. A record of a prewrite is written after its lock and has a value of its own.
   * So who has read the record, and then finds neither a lock nor the attachment, removes what nobody needs, or fails.
   * @returns how many records are left.
   */
  async removeStale(fence: Timestamp): Promise<number> {
    const records = [...(await this.#system.list(attachedPrefix(fence)))]
    let left = 0
    for (let at = 0; at < records.length; at += ROWS_AT_A_TIME) {
      const some = records.slice(at, at + ROWS_AT_A_TIME)
      const rows = await this.#rows.read(
        some.map(([name]) => keyOfAttached(name)),
        'data',
        TIMESTAMP_MAX,
      )
      const removed = await Promise.all(
        some.map(([name, value], i) => {
          const { lock, writes = [] } = rows[i] ?? {}
          if (lock !== undefined || attachedFence(writes) === fence) return false
          return this.#system.replace(name, value, undefined)
        }),
      )
      left += removed.filter((isRemoved) => !isRemoved).length
    }
    return left
  }
}
