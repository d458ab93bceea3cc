import { test as declare } from 'vitest'
import type { AnswerBudget } from '../../../src/store/answer-budget.js'
import type { CompleteStore, Traits } from '../../../src/store/store.js'

export interface StoreOptions {
  /** Of `StoreKind.place`; absent: a place of its own. */
  readonly place?: string | undefined
  /** Unix milliseconds, and milliseconds that pass as time does. See `Clock`. */
  readonly now?: (() => number) | undefined
  readonly monotonicNow?: (() => number) | undefined
  readonly answers?: AnswerBudget
  readonly locksMax?: number
}

/** A store that is held to the contract. */
export interface StoreKind {
  /** Cases that need more are reported as skipped. */
  readonly traits: Traits
  /** The suite's caller closes what it opened after each test. */
  readonly open: (options?: StoreOptions) => Promise<CompleteStore>
  /** Other processes may have the same data open. */
  readonly hasManyClocks?: boolean
  /** Makes a place that keeps its data while no store is open on it. Absent: a closed store is gone. */
  readonly place?: (() => Promise<string>) | undefined
}

export type Need =
  | 'promptLog'
  | 'clockJumps'
  | 'collection'
  | 'onePhaseCommit'
  | 'asyncCommit'
  | 'deadlocks'
  | 'restore'
  | 'lockCount'
  | 'places'
  | 'queues'
  | 'sharedCells'

const LACKS: Readonly<Record<Need, string>> = {
  promptLog: 'the log is behind, and has tests of its own in test/store/table/log',
  clockJumps: 'the store goes by the clocks of many servers, so it leaves no jump out of ages',
  collection: 'the store does not collect old versions',
  onePhaseCommit: 'the store commits in two phases only',
  asyncCommit: 'the store has no async commit',
  deadlocks: 'the store ends deadlocks by timeouts',
  restore: 'the store takes no restore',
  lockCount: 'the store does not count its locks',
  queues: 'locks stand where other processes see them, and those who wait have no order',
  sharedCells: 'one server has the cells of observers to itself',
  places: 'the store keeps nothing once it is closed',
}

type Body = () => Promise<void>
/** Declares a case, as vitest's `test` does. */
export type Declare = (name: string, ...how: [Body] | [{ readonly tags: string[] }, Body]) => void

/** The cases of the contract, for one kind of store. */
export class Contract {
  /** @param needs of all cases. */
  constructor(
    readonly kind: StoreKind,
    readonly needs: readonly Need[] = [],
  ) {}

  readonly open = (options?: StoreOptions): Promise<CompleteStore> => this.kind.open(options)

  /** A case for every store. */
  readonly test: Declare = (name, ...how) => this.needing()(name, ...how)

  /** A case for stores that have what is needed; the others report it as skipped, with the reason. */
  readonly needing = (...needs: readonly Need[]): Declare => {
    const lacking = [...this.needs, ...needs].filter((need) => !this.#has(need)).map((need) => LACKS[need])
    if (lacking.length === 0)
      return (name, ...how) => (how.length === 1 ? declare(name, how[0]) : declare(name, how[0], how[1]))
    return (...[name]) => declare(name, ({ skip }) => skip(lacking.join('; ')))
  }

  /** The same for cases that all need something. */
  all(...needs: readonly Need[]): Contract {
    return new Contract(this.kind, needs)
  }

  /** For cases that need `places`. */
  place(): Promise<string> {
    if (this.kind.place === undefined) throw new Error(LACKS.places)
    return this.kind.place()
  }

  #has(need: Need): boolean {
    if (need === 'places') return this.kind.place !== undefined
    if (need === 'clockJumps' || need === 'queues' || need === 'promptLog') return !this.kind.hasManyClocks
    if (need === 'sharedCells') return this.kind.hasManyClocks === true
    if (need === 'deadlocks') return this.kind.traits.deadlocks === 'detected'
    return this.kind.traits[need]
  }
}
