import type { SystemKind, SystemName } from '../../system-records.js'

export const SYSTEM_KINDS: Readonly<Record<SystemKind, SystemKindNames>> = {
  outcome: { one: 'outcome of the idempotency key', all: 'outcomes of requests with an idempotency key', fieldsMin: 3 },
  pin: { one: 'pin', all: 'pins', fieldsMin: 2 },
}

interface SystemKindNames {
  readonly one: string
  readonly all: string
  /** Fewest entries of the record's MessagePack array. */
  readonly fieldsMin: number
}

/** @returns undefined for a kind of a later version. */
export function kindOf(name: SystemName): SystemKind | undefined {
  const kind = name.slice(0, name.indexOf('/'))
  return Object.hasOwn(SYSTEM_KINDS, kind) ? (kind as SystemKind) : undefined
}
