import type { SystemKind, SystemName } from '../../system-records.js'

/** How check and repair tell the records of each kind. */
export const SYSTEM_KINDS: Readonly<Record<SystemKind, SystemKindNames>> = {
  outcome: { one: 'outcome of the idempotency key', all: 'outcomes of requests with an idempotency key', fieldsMin: 3 },
  pin: { one: 'pin', all: 'pins', fieldsMin: 2 },
}

interface SystemKindNames {
  readonly one: string
  readonly all: string
  /** Of the record's MessagePack array. */
  readonly fieldsMin: number
}

/** undefined: a later version's. */
export function kindOf(name: SystemName): SystemKind | undefined {
  const kind = name.slice(0, name.indexOf('/'))
  return Object.hasOwn(SYSTEM_KINDS, kind) ? (kind as SystemKind) : undefined
}
