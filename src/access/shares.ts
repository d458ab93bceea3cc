import { KvError } from '../errors/kv-error.js'

/** No caller holds more than this part of a bound that all callers have in common. */
const SHARE = 0.5

/**
 * What each caller holds of something that all callers together may hold only so much of. Each caller has half of it at most, so that
 * nobody can use it up alone. The total is counted by whoever has the bound.
 *
 * A caller is the identity of a token, or `callerOf` a request without one. undefined: the server does not tell its callers apart, so nothing is
 * counted, and all of it is theirs.
 */
export class Shares {
  readonly #of = new Map<string, number>()

  /** @param amount negative for what is given back. */
  add(caller: string | undefined, amount: number): void {
    if (caller === undefined) return
    const sum = (this.#of.get(caller) ?? 0) + amount
    if (sum > 0) this.#of.set(caller, sum)
    else this.#of.delete(caller)
  }

  of(caller: string | undefined): number {
    return caller === undefined ? 0 : (this.#of.get(caller) ?? 0)
  }

  /** @param max of all callers together. */
  hasRoom(caller: string | undefined, max: number): boolean {
    return caller === undefined || this.of(caller) < max * SHARE
  }

  /** @throws KvError `overloaded` */
  require(caller: string | undefined, max: number, what: string): void {
    if (!this.hasRoom(caller, max)) throw new KvError('overloaded', halfTaken(what), {})
  }
}

export function halfTaken(what: string): string {
  return `this caller has half of all ${what} that the server allows: the rest is left to others`
}

/** Things with names, and which caller has made each of them. Of what was made before the server started nobody knows. */
export class OwnedNames {
  readonly #shares = new Shares()
  readonly #owners = new Map<string, string>()
  /** Those whose making has begun, and may fail. */
  readonly #beginning = new Set<string>()

  /** @param max of all callers together. */
  constructor(
    readonly max: number,
    readonly what: string,
    readonly isThere: (name: string) => boolean,
  ) {}

  /**
   * Makes something, or changes what is there. It is the caller's then.
   * @throws KvError `overloaded` when the caller has half of all; the errors of `make`.
   */
  async making<T>(name: string, caller: string | undefined, make: () => Promise<T>): Promise<T> {
    if (caller === undefined) return make()
    const isNew = !this.isThere(name) && !this.#beginning.has(name)
    if (isNew) {
      this.#require(caller)
      this.#beginning.add(name)
      this.#own(name, caller)
    }
    try {
      const made = await make()
      this.#own(name, caller)
      return made
    } finally {
      if (isNew) this.#beginning.delete(name)
    }
  }

  #require(caller: string): void {
    // What has gone by itself is found only when that matters.
    if (!this.#shares.hasRoom(caller, this.max))
      for (const name of this.#owners.keys()) if (!this.#beginning.has(name) && !this.isThere(name)) this.#disown(name)
    this.#shares.require(caller, this.max, this.what)
  }

  #own(name: string, caller: string): void {
    if (this.#owners.get(name) === caller) return
    this.#disown(name)
    this.#owners.set(name, caller)
    this.#shares.add(caller, 1)
  }

  #disown(name: string): void {
    this.#shares.add(this.#owners.get(name), -1)
    this.#owners.delete(name)
  }
}
