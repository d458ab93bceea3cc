import { invalid } from '../../errors/kv-error.js'
import { printKey } from '../../errors/print-key.js'
import { ATTACHED_MAX } from '../../limits.js'
import type { PrewriteRequest } from '../../percolator/api.js'
import type { Timestamp } from '../../timestamp.js'
import { ATTACHED_END, attachedName, attachedPrefix, fenceOfAttached } from '../attached-names.js'
import type { Attachments } from '../attachments.js'
import type { HeldLeases } from '../held-leases.js'
import type { SystemWrite } from '../system-records.js'
import { ROW_KEY_BYTES_MAX, rowKeyOfSystem } from './row-keys.js'
import type { SystemRows } from './system-rows.js'

/** Grants whose keys this process has counted. */
const COUNTED_MAX = 1000
/** From one count of the keys of a grant to the next. */
const COUNT_AGAIN_MS = 1000
const NOTHING = new Uint8Array()

interface Count {
  atMost: number
  readonly countedAtMs: number
}

/**
 * Keys that are attached to leases. The record of a key is written before the key is locked. So it may stand for a key that was never attached, and
 * none is missing.
 */
export class AttachingKeys implements Attachments {
  readonly #system: SystemRows
  readonly #leases: HeldLeases
  /** Records by the fences of their grants, as far as this process knows. The oldest is dropped first. */
  readonly #counts = new Map<Timestamp, Count>()

  constructor(system: SystemRows, leases: HeldLeases) {
    this.#system = system
    this.#leases = leases
  }

  async load(): Promise<readonly Timestamp[]> {
    const fences: Timestamp[] = []
    for (let from = attachedPrefix(0); ; ) {
      const [first] = await this.#system.page(from, ATTACHED_END, 1)
      const fence = first && fenceOfAttached(first[0])
      if (fence === undefined) return fences
      fences.push(fence)
      from = attachedPrefix(fence + 1)
    }
  }

  /** The records of leases say so. */
  has(): boolean {
    return true
  }

  end(): Promise<never> {
    throw new Error('keys of several rows are deleted by a transaction')
  }

  /** Of a prewrite that attaches keys. @throws KvError `invalid_argument`; `precondition_failed` if a lease is lost. */
  async before({ mutations, riders }: PrewriteRequest): Promise<void> {
    const added = new Map<Timestamp, SystemWrite[]>()
    for (const { key, leaseFence = 0 } of mutations) {
      if (leaseFence === 0) continue
      const name = attachedName(leaseFence, key)
      if (rowKeyOfSystem(name).length > ROW_KEY_BYTES_MAX)
        throw invalid('lease', `the key ${printKey(key)} is too long to be attached to a lease on Bigtable`)
      const writes = added.get(leaseFence) ?? []
      writes.push({ name, value: NOTHING })
      added.set(leaseFence, writes)
    }
    for (const [fence, writes] of added) {
      const place = riders?.leases?.findIndex((rider) => rider.fence === fence) ?? -1
      const rider = riders?.leases?.[place]
      if (rider === undefined) continue // The prewrite is refused.
      await this.#leases.attaches({ index: place, ...rider })
      await this.#requireRoom(fence, writes.length)
      await this.#system.write(writes)
    }
  }

  /** Counts the keys of other processes too, where there might be too many. */
  async #requireRoom(fence: Timestamp, more: number): Promise<void> {
    let count = this.#counts.get(fence)
    const isFull = (): boolean => count === undefined || count.atMost + more > ATTACHED_MAX
    const nowMs = performance.now()
    if (isFull() && (count === undefined || nowMs - count.countedAtMs >= COUNT_AGAIN_MS)) {
      count = { atMost: (await this.#system.list(attachedPrefix(fence))).size, countedAtMs: nowMs }
      this.#counts.set(fence, count)
      if (this.#counts.size > COUNTED_MAX)
        for (const oldest of this.#counts.keys()) if (this.#counts.delete(oldest)) break
    }
    if (count === undefined || isFull())
      throw invalid('lease', `more than ${ATTACHED_MAX} keys would be attached to the lease of the fence ${fence}`)
    count.atMost += more
  }
}
