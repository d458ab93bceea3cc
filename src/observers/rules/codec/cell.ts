import { CorruptRecord } from '../../../percolator/codec/key.js'
import { asInteger, asOneOf, packRecord, unpackRecord } from '../../../percolator/codec/record.js'
import { type Ack, type Failure, MARK_KINDS, type StoredNotification } from '../cell.js'

/** Fewest fields of each record. */
const NOTIFICATION_FIELDS = 3
const ACK_FIELDS = 3
const FAILURE_FIELDS = 7

export function encodeNotification({ changeTs, kind, depth }: StoredNotification): Buffer {
  return packRecord([changeTs, MARK_KINDS.indexOf(kind), depth])
}

export function decodeNotification(bytes: Uint8Array): StoredNotification {
  const [changeTs, kind, depth] = unpackRecord(bytes, NOTIFY, NOTIFICATION_FIELDS)
  return {
    changeTs: asInteger(changeTs, NOTIFY),
    kind: asOneOf(kind, NOTIFY, MARK_KINDS),
    depth: asInteger(depth, NOTIFY),
  }
}

export function encodeAck({ ackTs, commitTs, startTs }: Ack): Buffer {
  return packRecord([ackTs, commitTs, startTs])
}

export function decodeAck(bytes: Uint8Array): Ack {
  const [ackTs, commitTs, startTs] = unpackRecord(bytes, ACK, ACK_FIELDS)
  return { ackTs: asInteger(ackTs, ACK), commitTs: asInteger(commitTs, ACK), startTs: asInteger(startTs, ACK) }
}

export function encodeFailure({ attempts, notBeforeMs, error, parkedTs, changeTs, kind, depth }: Failure): Buffer {
  return packRecord([attempts, notBeforeMs, error, parkedTs, changeTs, MARK_KINDS.indexOf(kind), depth])
}

export function decodeFailure(bytes: Uint8Array): Failure {
  const [attempts, notBeforeMs, error, parkedTs, changeTs, kind, depth] = unpackRecord(bytes, FAILURE, FAILURE_FIELDS)
  if (typeof error !== 'string') throw new CorruptRecord(`a ${FAILURE} record holds a bad error`)
  return {
    attempts: asInteger(attempts, FAILURE),
    notBeforeMs: asInteger(notBeforeMs, FAILURE),
    error,
    parkedTs: asInteger(parkedTs, FAILURE),
    changeTs: asInteger(changeTs, FAILURE),
    kind: asOneOf(kind, FAILURE, MARK_KINDS),
    depth: asInteger(depth, FAILURE),
  }
}

const NOTIFY = 'notify'
const ACK = 'acknowledgement'
const FAILURE = 'failure'
