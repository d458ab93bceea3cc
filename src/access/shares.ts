import { KvError } from '../errors/kv-error.js'

/** Largest part of a shared bound that one caller may hold. */
const SHARE = 0.5

/**
 * The amounts that callers hold of a shared resource. Each caller may have half of it, so that no caller can use it up alone.
 * The owner of the bound counts the total.
 * A caller is the identity of a token, or `callerOf` a request without one. undefined: the server does not distinguish its
 * callers, so nothing is counted, and they may use all of it.
 */
export class Shares {
  readonly #of = new Map<string, number>()

  /** @param amount negative for a release. */
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

/** Remembers which caller has made each of some named objects. Objects from before the server's start have no owner. */
export class OwnedNames {
  readonly #shares = new Shares()
  readonly #owners = new Map<string, string>()
  /** Names whose making has begun, and may fail. */
  readonly #beginning = new Set<string>()

  /** @param max of all callers together. */
  constructor(
    readonly max: number,
    readonly what: string,
    readonly isThere: (name: string) => boolean,
  ) {}

  /**
   * Makes or changes an object, which the caller owns then.
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
    // Objects that have ended by themselves are looked for only when that matters.
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
