import type { Timestamp } from '../../../timestamp.js'
import type { CellKind } from '../../cell-names.js'
import { opened } from '../engine/checksum.js'
import { type Engine, pagesOf } from '../engine/engine.js'
import { nameOfSystem, systemRange } from '../records/keyspace.js'
import { observerIdIn } from '../records/system-kinds.js'

const RECORDS_AT_A_TIME = 1000
const OBSERVERS = 'observer/'
const NAMES_MAX = 20

interface Whose {
  readonly names: string
  /** The consequence of lost records, by kind, for a message. */
  readonly remedies: Readonly<Record<CellKind, string>>
}

export class RegisteredObservers {
  readonly #names: ReadonlyMap<Timestamp, string>
  readonly #areAllKnown: boolean

  /** @param areAllKnown false when records of observers may be lost. */
  constructor(names: ReadonlyMap<Timestamp, string>, areAllKnown: boolean) {
    this.#names = names
    this.#areAllKnown = areAllKnown
  }

  whose(isMeant: (id: Timestamp) => boolean): Whose | undefined {
    const names = [...this.#names].flatMap(([id, name]) => (isMeant(id) ? name : [])).sort()
    if (names.length === 0 && this.#areAllKnown) return undefined
    const shown = names.slice(0, NAMES_MAX)
    const more = names.length > shown.length ? [`${names.length - shown.length} more`] : []
    const lost = this.#areAllKnown ? [] : ['others that are lost themselves']
    return { names: `the observers ${[...shown, ...more, ...lost].join(', ')}`, remedies: REMEDIES }
  }

  /** @returns undefined for an unregistered or unknown observer. */
  observerName(id: Timestamp): string | undefined {
    return this.#names.get(id)
  }
}

export const REMEDIES: Readonly<Record<CellKind, string>> = {
  notify: ': changes may never be run, until a backfill runs all keys, and others may be run again',
  ack: ': what was run may be run again',
  failure: ': parked keys may never be run, until a backfill runs all keys',
}

export async function registeredObservers(engine: Engine, areAllKnown: boolean): Promise<RegisteredObservers> {
  const names = new Map<Timestamp, string>()
  let areRead = areAllKnown
  for await (const page of pagesOf(engine, systemRange(OBSERVERS), RECORDS_AT_A_TIME))
    for (const [stored, sealed] of page) {
      const [name, backfill] = nameOfSystem(stored).slice(OBSERVERS.length).split('/')
      if (name === undefined || backfill !== undefined) continue
      try {
        const value = opened(stored, sealed)
        if (value === undefined) areRead = false
        else names.set(observerIdIn(value), name)
      } catch {
        areRead = false
      }
    }
  return new RegisteredObservers(names, areRead)
}
