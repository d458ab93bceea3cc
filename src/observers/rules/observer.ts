import type { KeyRange } from '../../bytes/key-range.js'
import { invalid, KvError } from '../../errors/kv-error.js'
import { printKey } from '../../errors/print-key.js'
import { contains } from '../../percolator/range-index.js'
import type { Timestamp } from '../../timestamp.js'

/** A range whose committed Puts and Deletes mark one cell per key. The paper, section 2.4. */
export interface Observer {
  /** Timestamp of its creation, so ids are never reused. */
  readonly id: Timestamp
  readonly name: string
  readonly range: KeyRange
  /** A deeper mark is parked at once; 0: any depth. */
  readonly maxDepth: number
}

/** An observer as known to the servers of one store. */
export interface RegisteredObserver extends Observer {
  /** Commits above it are marked. 0: registration is in progress. */
  readonly sinceTs: Timestamp
}

/** @param fieldOf names the key in the error. @throws KvError `invalid_argument` */
export function requireInRange(
  { name, range }: Pick<Observer, 'name' | 'range'>,
  key: Uint8Array,
  fieldOf: () => string,
): void {
  if (contains(range, key)) return
  const field = fieldOf()
  throw invalid(field, `${field} ${printKey(key)} is outside the range of the observer ${name}`)
}

export function noSuchObserver(name: string): KvError<'not_found'> {
  return new KvError('not_found', `there is no observer ${name}`, {})
}
