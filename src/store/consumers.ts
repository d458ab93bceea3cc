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

/** Calls must not throw. */
export interface ConsumerListener {
  /** A transaction has moved the position. The record is on disk, and its latch is still held. */
  moved(consumer: Consumer): void
  /** The database was opened again after a failed write: only the disk has the positions. */
  reloaded(): void
}

export class ConsumerMoves {
  #listener: ConsumerListener | undefined

  /** At most one listener. */
  listen(listener: ConsumerListener): void {
    this.#listener = listener
  }

  /** Call when the records are on disk, before their latches are released. */
  notifyListeners(consumers: readonly Consumer[]): void {
    for (const consumer of consumers) this.#listener?.moved(consumer)
  }

  reloaded(): void {
    this.#listener?.reloaded()
  }
}
