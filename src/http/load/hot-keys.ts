import { keyText } from '../../bytes/key-text.js'
import type { TouchedKeys } from './touched-keys.js'

/** One request of so many is looked at, on average. */
export const SAMPLED_EVERY = 256
/** Keys that are counted at a time. */
const COUNTED_MAX = 128
/** What is older counts for less than a third. */
const MEMORY_S = 60
/** A key that was met less often may be there by chance. */
const MET_MIN = 3
const SCALE_MAX = 1e100
/** Longer keys are refused by default, and would only take memory. */
const KEY_BYTES_COUNTED = 4096

export interface HotKey {
  readonly key: Uint8Array
  readonly readsPerSecond: number
  readonly writesPerSecond: number
}

interface Counted {
  readonly key: Uint8Array
  /** Part of the weight. */
  writes: number
  /** Part of the weight that the key may have taken over from the one whose place it has. */
  error: number
  met: number
}

/**
 * The keys that are used most, by a sample of the requests: "space saving" (Metwally, Agrawal, El Abbadi 2005), whose counts fade
 * (forward decay). A request that is not looked at costs one decrement. The gaps are random, so that no rhythm of a client's hides
 * from them.
 */
export class HotKeys {
  readonly #places = new Map<string, number>()
  readonly #counted: Counted[] = []
  /** Estimates of accesses, scaled: see `#scale`. Apart, because the least is looked for. */
  readonly #weights = new Float64Array(COUNTED_MAX).fill(Number.POSITIVE_INFINITY)
  readonly #now: () => number
  readonly #beganS: number
  #baseS: number
  #left = gap()

  /** @param now milliseconds that only rise. */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now
    this.#baseS = now() / 1000
    this.#beganS = this.#baseS
  }

  /** To be asked once for each request. @returns whether `note` must be called for it. */
  isNext(): boolean {
    return --this.#left <= 0
  }

  note({ keys, writes }: TouchedKeys): void {
    this.#left = gap()
    // One key stands for all of them: a long list must not push out what was counted.
    const key = keys[Math.floor(Math.random() * keys.length)]
    if (key === undefined || key.length > KEY_BYTES_COUNTED) return
    const place = this.#placeOf(key)
    const counted = this.#counted[place] as Counted
    const weight = keys.length * this.#scale()
    counted.met++
    if (writes) counted.writes += weight
    this.#weights[place] = this.#weightAt(place) + weight
  }

  /** The hottest keys first. */
  list(limit: number): readonly HotKey[] {
    const ageS = this.#now() / 1000 - this.#beganS
    const seen = MEMORY_S * (1 - Math.exp(-Math.max(1, ageS) / MEMORY_S))
    const perSecond = SAMPLED_EVERY / seen / this.#scale()
    return this.#counted
      .map((counted, place) => ({ ...counted, weight: this.#weightAt(place) }))
      .filter(({ met, weight, error }) => met >= MET_MIN && (weight - error) * perSecond * seen >= SAMPLED_EVERY)
      .sort((a, b) => b.weight - b.error - a.weight + a.error)
      .slice(0, limit)
      .map(({ key, weight, writes, error }) => {
        return { key, readsPerSecond: (weight - error - writes) * perSecond, writesPerSecond: writes * perSecond }
      })
  }

  #placeOf(key: Uint8Array): number {
    const text = keyText(key)
    const known = this.#places.get(text)
    if (known !== undefined) return known
    const place = this.#counted.length < COUNTED_MAX ? this.#counted.length : this.#least()
    const before = this.#counted[place]
    if (before === undefined) this.#weights[place] = 0
    else this.#places.delete(keyText(before.key))
    this.#places.set(text, place)
    // A copy: a view would keep the whole request in memory.
    this.#counted[place] = { key: new Uint8Array(key), writes: 0, error: this.#weightAt(place), met: 0 }
    return place
  }

  #least(): number {
    const weights = this.#weights
    let least = 0
    for (let place = 1; place < COUNTED_MAX; place++)
      if ((weights[place] as number) < (weights[least] as number)) least = place
    return least
  }

  #weightAt(place: number): number {
    return this.#weights[place] as number
  }

  /** What an access counts now. It grows instead of letting all counts shrink. */
  #scale(): number {
    const nowS = this.#now() / 1000
    const scale = Math.exp((nowS - this.#baseS) / MEMORY_S)
    if (scale < SCALE_MAX) return scale
    for (const [place, counted] of this.#counted.entries()) {
      this.#weights[place] = this.#weightAt(place) / scale
      counted.writes /= scale
      counted.error /= scale
    }
    this.#baseS = nowS
    return 1
  }
}

/** Requests until the next one that is looked at. */
function gap(): number {
  return 1 + Math.floor(Math.random() * (2 * SAMPLED_EVERY - 1))
}
