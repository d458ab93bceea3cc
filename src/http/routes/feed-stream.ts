import type { FeedEvent, FeedTxn } from '../../changes/rules/changes-api.js'
import { laterTurn, runSliced } from '../../event-loop/time-slicer.js'
import type { Timestamp } from '../../timestamp.js'
import type { EventStream, FeedFormat } from '../connections/event-stream.js'
import { eventOf, type TxnJson, txnFrame, txnJson } from '../wire/feed-text.js'

/** Texts are joined into writes of about this length. */
const WRITE_LENGTH = 64 * 1024
/** Characters written per turn of the event loop. */
const TURN_LENGTH = 256 * 1024

/** Sends the feed on streams. Events that go to several streams are encoded once. */
export class FeedStreams {
  readonly #encoded = new WeakMap<FeedTxn, TxnJson | Promise<TxnJson>>()
  #open = 0

  /** Returns at the end of the events, or when the stream is over. @throws the errors of `batches` */
  async send(stream: EventStream, format: FeedFormat, batches: AsyncIterable<readonly FeedEvent[]>): Promise<void> {
    this.#open++
    const sending = new Sending(stream, format, (txn) => this.#json(txn))
    try {
      for await (const batch of batches) {
        await sending.send(batch)
        if (stream.isOver) return
      }
    } finally {
      this.#open--
    }
  }

  #json(txn: FeedTxn): TxnJson | Promise<TxnJson> {
    if (this.#open === 1) return runSliced(txnJson(txn))
    let json = this.#encoded.get(txn)
    if (json === undefined) {
      json = runSliced(txnJson(txn))
      this.#encoded.set(txn, json)
    }
    return json
  }
}

/** Joins events into writes, and waits whenever the client has not taken the last one. */
class Sending {
  readonly #stream: EventStream
  readonly #format: FeedFormat
  readonly #json: (txn: FeedTxn) => TxnJson | Promise<TxnJson>
  #text = ''
  #turnLength = 0

  constructor(stream: EventStream, format: FeedFormat, json: (txn: FeedTxn) => TxnJson | Promise<TxnJson>) {
    this.#stream = stream
    this.#format = format
    this.#json = json
  }

  async send(batch: readonly FeedEvent[]): Promise<void> {
    for (let i = 0; i < batch.length && !this.#stream.isOver; i++) {
      const event = batch[i] as FeedEvent
      if (event.type === 'txn') await this.#txn(event, idOf(event, batch[i + 1]))
      else this.#text += eventOf(this.#format, event)
      if (this.#text.length >= WRITE_LENGTH) await this.#flush()
    }
    await this.#flush()
  }

  async #txn(txn: FeedTxn, id: Timestamp | undefined): Promise<void> {
    const [head, tail] = txnFrame(this.#format, id)
    const encoded = this.#json(txn)
    const json = encoded instanceof Promise ? await encoded : encoded
    if (typeof json === 'string') this.#text += `${head}${json}${tail}`
    else {
      this.#text += head
      for (const piece of json) {
        await this.#flush()
        await this.#write(piece)
      }
      this.#text += tail
    }
  }

  #flush(): Promise<void> | undefined {
    if (this.#text === '') return undefined
    const text = this.#text
    this.#text = ''
    return this.#write(text)
  }

  /** @returns undefined when the stream takes more at once. */
  #write(piece: string | Buffer): Promise<void> | undefined {
    const stream = this.#stream
    this.#turnLength += piece.length
    if (!stream.write(piece) && !stream.isOver) {
      this.#turnLength = 0
      return stream.hasRoom()
    }
    if (this.#turnLength < TURN_LENGTH) return undefined
    this.#turnLength = 0
    return laterTurn()
  }
}

/** Its commit_ts, if everything up to it has been delivered with it. */
function idOf(txn: FeedTxn, next: FeedEvent | undefined): Timestamp | undefined {
  if (txn.isLast === false || next === undefined) return undefined
  return next.type === 'txn' && next.commitTs === txn.commitTs ? undefined : txn.commitTs
}
