import { encodeConsumer } from '../changes/rules/codec/consumer.js'
import type { Consumer } from '../changes/rules/consumer.js'
import type { SystemName, SystemWrite } from './system-records.js'

export const CONSUMERS = 'consumer/' satisfies SystemName

export function nameOfConsumer(name: string): SystemName {
  return `${CONSUMERS}${name}`
}

export function consumerWrite(consumer: Consumer): SystemWrite {
  return { name: nameOfConsumer(consumer.name), value: encodeConsumer(consumer) }
}

/** Must not throw. */
export interface ConsumerListener {
  /** A transaction has moved the position. It is on disk, and the name of the record is held. */
  moved(consumer: Consumer): void
  /** The database was opened again after a failed write: only the disk knows where the positions are. */
  reloaded(): void
}

/**
 * Moves of consumers by transactions. A consumer is a system record, and whoever changes it holds its name.
 */
export class ConsumerMoves {
  #listener: ConsumerListener | undefined

  /** There is one listener at most. */
  listen(listener: ConsumerListener): void {
    this.#listener = listener
  }

  /** To be called when the records are on disk, before their names are released. */
  tell(consumers: readonly Consumer[]): void {
    for (const consumer of consumers) this.#listener?.moved(consumer)
  }

  reloaded(): void {
    this.#listener?.reloaded()
  }
}
