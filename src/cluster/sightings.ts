import { setMaxListeners } from 'node:events'
import type { RegistryName } from './registry-rows.js'

export interface Sighting {
  readonly bytes: Uint8Array
  /** When this server first saw this value, by its own monotonic clock. */
  readonly sinceMs: number
  /** The value was seen unchanged for `DEAD_MS`. */
  readonly isDead: boolean
  /** It was seen to change. */
  readonly hasChanged: boolean
  readonly gone: AbortController
}

/** A row that has not changed for this long belongs to a dead server. */
export const DEAD_MS = 20_000

/**
 * The rows as this server has seen them. A row counts as alive while it changes. Only this server's monotonic clock measures
 * that, from look to look: the clocks of other servers, and time in which this server has not looked, do not count.
 */
export class Sightings {
  readonly #seen = new Map<RegistryName, Sighting>()

  /**
   * @param rows all existing rows. @param beganMs when the look began, and @param endedMs when it had ended. Looks must not
   *   overlap.
   */
  note(rows: ReadonlyMap<RegistryName, Uint8Array>, beganMs: number, endedMs: number): void {
    for (const [name, { gone, sinceMs }] of this.#seen) {
      if (rows.has(name) || sinceMs > beganMs) continue // The row may have been written since the look began.
      this.#seen.delete(name)
      gone.abort(new Error('it is not there any more'))
    }
    for (const [name, bytes] of rows) {
      const before = this.#seen.get(name)
      if (before === undefined || !isSame(before.bytes, bytes)) this.#add(name, bytes, endedMs, before)
      else if (beganMs - before.sinceMs >= DEAD_MS) {
        this.#seen.set(name, { ...before, isDead: true })
        before.gone.abort(new Error('nothing was heard of it for a while'))
      }
    }
  }

  /** Adds one row that was read by itself, between two looks. */
  add(name: RegistryName, bytes: Uint8Array, endedMs: number): Sighting {
    const before = this.#seen.get(name)
    return before !== undefined && isSame(before.bytes, bytes) ? before : this.#add(name, bytes, endedMs, before)
  }

  #add(name: RegistryName, bytes: Uint8Array, sinceMs: number, before: Sighting | undefined): Sighting {
    const gone = before === undefined || before.isDead ? anyoneMayListen() : before.gone
    const sighting = { bytes, sinceMs, isDead: false, hasChanged: before !== undefined, gone }
    this.#seen.set(name, sighting)
    return sighting
  }

  get(name: RegistryName): Sighting | undefined {
    return this.#seen.get(name)
  }

  [Symbol.iterator](): IterableIterator<[RegistryName, Sighting]> {
    return this.#seen.entries()
  }
}

/** Without a limit on listeners: as many as there are requests to a server. */
function anyoneMayListen(): AbortController {
  const gone = new AbortController()
  setMaxListeners(0, gone.signal)
  return gone
}

export function isSame(one: Uint8Array, other: Uint8Array): boolean {
  return one.length === other.length && one.every((byte, i) => byte === other[i])
}
