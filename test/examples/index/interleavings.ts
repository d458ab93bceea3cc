import type { Txn } from '../../../docs/examples/index/observers.mjs'

type Run = (txn: Txn, change: { readonly key: string; readonly value: string | undefined }) => Promise<void>

interface Version {
  readonly ts: number
  readonly value: string | undefined
}

/** A run that has read and decided, and has yet to commit. */
interface OpenRun {
  readonly cell: string
  readonly startTs: number
  readonly writes: Map<string, string | undefined>
  readonly notified: readonly string[]
}

/**
 * As much of PerKV as the functions of observers see: versions, marks, and the rule that of two runs on one cell the second has
 * begun after the first committed. Runs commit in whatever order the test wants.
 */
export class World {
  readonly #observers: readonly (readonly [name: string, prefix: string, run: Run])[]
  readonly #versions = new Map<string, Version[]>()
  /** Timestamp of the newest mark, by `OBSERVER KEY`. */
  readonly #marks = new Map<string, number>()
  readonly #acks = new Map<string, number>()
  readonly #open: OpenRun[] = []
  #ts = 0

  constructor(observers: readonly (readonly [string, string, Run])[]) {
    this.#observers = observers
  }

  put(key: string, value: string | undefined): void {
    this.#commit(new Map([[key, value]]), undefined)
  }

  /** Everything below a prefix, now. */
  pairs(prefix: string, ts = this.#ts): [string, string][] {
    const keys = [...this.#versions.keys()].filter((key) => key.startsWith(prefix)).sort()
    return keys.flatMap((key) => {
      const value = this.#read(key, ts)
      return value === undefined ? [] : [[key, value] as [string, string]]
    })
  }

  /** Lets the run of a dirty cell read and decide. @param choice which cell, or its name. @returns false when it is not dirty. */
  async begin(choice: number | string): Promise<boolean> {
    const dirty = [...this.#marks.keys()]
    const cell = typeof choice === 'number' ? dirty[choice % dirty.length] : dirty.find((one) => one === choice)
    if (cell === undefined) return false
    const [name = '', key = ''] = [cell.slice(0, cell.indexOf(' ')), cell.slice(cell.indexOf(' ') + 1)]
    const observer = this.#observers.find(([one]) => one === name)
    if (observer === undefined) throw new Error(`nobody observes ${cell}`)
    const startTs = ++this.#ts
    const writes = new Map<string, string | undefined>()
    const notified: string[] = []
    const snapshot = (prefix: string) => this.pairs(prefix, startTs)
    const txn = {
      get: async (one: string) => this.#read(one, startTs),
      batchGet: async (keys: readonly string[]) => keys.map((one) => this.#read(one, startTs)),
      async *scan({ prefix }: { prefix: string }) {
        for (const [key, value] of snapshot(prefix)) yield { key, value }
      },
      put: async (one: string, value: string) => void writes.set(one, value),
      delete: async (one: string) => void writes.set(one, undefined),
      notify: async (to: string, ...keys: string[]) => void notified.push(...keys.map((one) => `${to} ${one}`)),
    }
    await observer[2](txn as unknown as Txn, { key, value: this.#read(key, startTs) })
    this.#open.push({ cell, startTs, writes, notified })
    return true
  }

  /** @param choice which of the open runs. A run that lost a race leaves its cell dirty. */
  end(choice: number): void {
    const [run] = this.#open.splice(choice % Math.max(1, this.#open.length), 1)
    if (run === undefined) return
    const { cell, startTs, writes, notified } = run
    const isLate = (this.#acks.get(cell) ?? 0) > startTs || !this.#marks.has(cell)
    const conflicts = [...writes.keys()].some((key) => (this.#versions.get(key)?.at(-1)?.ts ?? 0) > startTs)
    if (isLate || conflicts) return
    if ((this.#marks.get(cell) ?? 0) <= startTs) this.#marks.delete(cell)
    const commitTs = this.#commit(writes, cell)
    for (const one of notified) this.#marks.set(one, commitTs)
    this.#acks.set(cell, commitTs)
  }

  /** Until nothing is dirty. */
  async drain(): Promise<void> {
    while (this.#open.length > 0) this.end(0)
    for (let choice = 0; await this.begin(choice); choice += 7) this.end(0)
  }

  #read(key: string, ts: number): string | undefined {
    return this.#versions.get(key)?.findLast((version) => version.ts <= ts)?.value
  }

  #commit(writes: Map<string, string | undefined>, own: string | undefined): number {
    const ts = ++this.#ts
    for (const [key, value] of writes) {
      this.#versions.set(key, [...(this.#versions.get(key) ?? []), { ts, value }])
      for (const [name, prefix] of this.#observers)
        if (key.startsWith(prefix) && `${name} ${key}` !== own) this.#marks.set(`${name} ${key}`, ts)
    }
    return ts
  }
}
