import { decodeConsumer } from '../../../changes/rules/codec/consumer.js'
import { decodeLease } from '../../../leases/rules/codec/lease.js'
import { decodeAck, decodeFailure, decodeNotification } from '../../../observers/rules/codec/cell.js'
import { CorruptRecord } from '../../../percolator/codec/key.js'
import { asInteger, unpackRecord } from '../../../percolator/codec/record.js'
import type { Timestamp } from '../../../timestamp.js'
import { CELL_KINDS, type CellKind, idOfCell } from '../../cell-names.js'
import type { SystemKind, SystemName } from '../../system-records.js'

export const SYSTEM_KINDS: Readonly<Record<SystemKind, SystemKindRules>> = {
  pin: {
    one: 'pin',
    all: 'pins',
    timestampsIn: (value) => [asInteger(unpackRecord(value, 'pin', 2)[0], 'pin')],
  },
  consumer: {
    one: 'consumer',
    all: 'consumers',
    timestampsIn: (value) => {
      const { id, position, ackedTs, startTs, commitTs } = decodeConsumer('', value)
      return [id, position, ackedTs, startTs, commitTs]
    },
  },
  observer: {
    one: 'observer',
    all: 'observers',
    timestampsIn: (value) => [observerIdIn(value)],
  },
  notify: {
    one: 'notification',
    all: 'notifications',
    timestampsIn: (value) => [decodeNotification(value).changeTs],
  },
  ack: {
    one: 'acknowledgement',
    all: 'acknowledgements',
    timestampsIn: (value) => {
      const { ackTs, commitTs, startTs } = decodeAck(value)
      return [ackTs, commitTs, startTs]
    },
  },
  failure: {
    one: 'failed run',
    all: 'failed runs',
    timestampsIn: (value) => {
      const { parkedTs, changeTs } = decodeFailure(value)
      return [parkedTs, changeTs]
    },
  },
  lease: {
    one: 'lease',
    all: 'leases',
    timestampsIn: (value) => [decodeLease(value).fence],
  },
  webhook: {
    one: 'webhook',
    all: 'webhooks',
    timestampsIn: (value) =>
      unpackRecord(value, 'webhook', 13)
        .slice(0, 2)
        .map((ts) => asInteger(ts, 'webhook')),
  },
  expiry: {
    one: 'progress of expiries for observers',
    all: 'progress of expiries for observers',
    timestampsIn: (value) => [asInteger(unpackRecord(value, 'expiry', 1)[0], 'expiry')],
  },
}

interface SystemKindRules {
  readonly one: string
  readonly all: string
  /** Decodes a record. @throws CorruptRecord */
  readonly timestampsIn: (value: Uint8Array) => readonly Timestamp[]
}

export function kindOf(name: SystemName): SystemKind | undefined {
  const kind = name.slice(0, name.indexOf('/'))
  return Object.hasOwn(SYSTEM_KINDS, kind) ? (kind as SystemKind) : undefined
}

export function isCellKind(kind: SystemKind): kind is CellKind {
  return CELL_KINDS.some((each) => each === kind)
}

/** @throws CorruptRecord for a name or value that no record of this kind can have. */
export function requireSoundRecord(kind: SystemKind, name: SystemName, value: Uint8Array): void {
  if (isCellKind(kind) && idOfCell(kind, name) === undefined)
    throw new CorruptRecord(`the name of the ${kind} record has no id of an observer`)
  SYSTEM_KINDS[kind].timestampsIn(value)
}

export function observerIdIn(value: Uint8Array): Timestamp {
  return asInteger(unpackRecord(value, 'observer', 3)[0], 'observer')
}
