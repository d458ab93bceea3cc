import { ACK_FIELDS, ENTRY_FIELDS, FAILURE_FIELDS } from '../../../percolator/codec/cell.js'
import type { SystemKind, SystemName } from '../../system-records.js'

export const SYSTEM_KINDS: Readonly<Record<SystemKind, SystemKindNames>> = {
  outcome: { one: 'outcome of the idempotency key', all: 'outcomes of requests with an idempotency key', fieldsMin: 3 },
  pin: { one: 'pin', all: 'pins', fieldsMin: 2 },
  observer: { one: 'observer', all: 'observers', fieldsMin: 3 },
  notify: { one: 'notification', all: 'notifications of observers', fieldsMin: ENTRY_FIELDS },
  ack: { one: 'acknowledgement', all: 'acknowledgements of observers', fieldsMin: ACK_FIELDS },
  failure: { one: 'failed run', all: 'failed runs of observers', fieldsMin: FAILURE_FIELDS },
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
