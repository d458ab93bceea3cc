import type { Changes } from '../changes/changes.js'
import type { FeedPage, FeedTxn } from '../changes/rules/changes-api.js'
import { isKvError } from '../errors/kv-error.js'
import { onAbort } from '../event-loop/on-abort.js'
import { runSliced } from '../event-loop/time-slicer.js'
import { txnJson } from '../http/wire/feed-text.js'
import { WEBHOOK_BYTES } from '../limits.js'
import type { Timestamp } from '../timestamp.js'
import { post } from './post.js'
import type { FailedAttempt } from './retry-policy.js'
import { signature } from './signing-secret.js'
import type { Targets } from './targets.js'
import { consumerOf, type Webhook } from './webhook.js'

/** How long a page waits for a transaction. */
const WAIT_MS = 20_000
/** Longest rest before the state is looked at again. */
const REST_MS_MAX = 10_000
/** Rest after a failure of this server. */
const ERROR_REST_MS = 5000

export interface CourierSources {
  readonly changes: Pick<Changes, 'page' | 'consumers'>
  /** Moves the position of a consumer, unless somebody has moved it meanwhile. @throws KvError `write_conflict` */
  readonly acknowledge: (consumer: string, from: Timestamp, ts: Timestamp) => Promise<void>
  readonly targets: Targets
  readonly userAgent: string
  /** Transactions longer than this are sent in parts. */
  readonly partBytesMax: number
  /** @returns undefined when the webhook was removed. */
  readonly webhook: () => Webhook | undefined
  readonly nowMs: () => number
  /** Called after each batch that was delivered, when its position is stored. */
  readonly delivered: (webhook: Webhook) => Promise<void>
  readonly failed: (webhook: Webhook, attempt: FailedAttempt, upTo: Timestamp) => Promise<void>
  /** Called once, when changes are missing, or the consumer is. */
  readonly onGap: () => void
  /** Called with failures of this server. */
  readonly onError: (error: unknown) => void
}

/** Sends the transactions of one webhook: one request at a time, in order. */
export class Courier {
  readonly #sources: CourierSources
  readonly #signal: AbortSignal
  #wake: () => void = () => {}
  #isInGap = false

  constructor(sources: CourierSources, signal: AbortSignal) {
    this.#sources = sources
    this.#signal = signal
  }

  /** Call when the webhook has changed. */
  wake(): void {
    this.#wake()
  }

  /** Ends when the webhook is removed, or the signal aborts. Never rejects. */
  async run(): Promise<void> {
    for (;;) {
      const webhook = this.#sources.webhook()
      if (webhook === undefined || this.#signal.aborted) return
      const { failure } = webhook
      const restMs = failure === undefined ? 0 : failure.nextMs - this.#sources.nowMs()
      if (failure?.isParked) await this.#rest(REST_MS_MAX)
      else if (restMs > 0) await this.#rest(restMs)
      else await this.#deliver(webhook).catch((error) => this.#failed(error))
    }
  }

  /** A gap, or a consumer that was deleted, lasts until a reset. */
  async #failed(error: unknown): Promise<void> {
    if (isKvError(error, 'write_conflict')) return // Somebody has reset the position, and the page was of before.
    const isGap = isKvError(error, 'ts_below_safe_point') || isKvError(error, 'not_found')
    if (isGap && !this.#isInGap) this.#sources.onGap()
    this.#isInGap = isGap
    if (!isGap && !this.#signal.aborted) this.#sources.onError(error)
    await this.#rest(isGap ? REST_MS_MAX : ERROR_REST_MS)
  }

  #rest(ms: number): Promise<void> {
    if (this.#signal.aborted) return Promise.resolve()
    return new Promise((resolve) => {
      const end = (): void => {
        clearTimeout(timer)
        unlisten()
        resolve()
      }
      const timer = setTimeout(end, Math.min(ms, REST_MS_MAX))
      const unlisten = onAbort(this.#signal, end)
      this.#wake = end
    })
  }

  async #deliver(webhook: Webhook): Promise<void> {
    const { changes, partBytesMax } = this.#sources
    const consumer = consumerOf(webhook.name)
    const { position: from } = await changes.consumers.get(consumer)
    const asked = { consumer, sinceTs: from, limit: webhook.batch, waitMs: WAIT_MS, signal: this.#signal }
    const page = await changes.page(asked, { bytesMax: Math.min(WEBHOOK_BYTES, partBytesMax), heldMax: partBytesMax })
    const { txns, upTo } = batchOf(page, webhook.failure?.upTo)
    const present = this.#sources.webhook() // It may have changed while the page waited.
    try {
      if (txns.length === 0 || present?.id !== webhook.id) return
      const failed = await this.#send(present, txns, page.rest)
      if (this.#signal.aborted) return // Another server may deliver by now.
      if (failed !== undefined) return await this.#sources.failed(present, failed, upTo)
    } finally {
      await page.rest?.return({ resolvedTs: 0, nextTs: 0 })
    }
    if (this.#sources.webhook()?.id !== webhook.id) return // Another one has its name by now.
    await this.#sources.acknowledge(consumer, from, upTo)
    this.#isInGap = false
    await this.#sources.delivered(present)
  }

  /** @param rest of a long transaction, whose parts are sent one by one. */
  async #send(webhook: Webhook, txns: readonly FeedTxn[], rest: FeedPage['rest']): Promise<FailedAttempt | undefined> {
    let failed = await this.#post(webhook, txns, rest && 0)
    for (let part = 1; rest !== undefined && failed === undefined; part++) {
      const next = await rest.next()
      if (next.done) break
      failed = await this.#post(webhook, [next.value], part)
    }
    return failed
  }

  async #post(
    webhook: Webhook,
    txns: readonly FeedTxn[],
    part: number | undefined,
  ): Promise<FailedAttempt | undefined> {
    const url = new URL(webhook.url)
    const { targets, userAgent } = this.#sources
    if (!targets.allows(url)) return { error: '--webhook-targets of this server does not allow the url' }
    const body = await bodyOf(webhook.name, txns)
    if (this.#signal.aborted) return { error: 'the server stopped sending' }
    const id = messageId(webhook.name, txns, part)
    const timestamp = Math.floor(Date.now() / 1000) // Targets compare it with their clocks.
    const headers = {
      'content-type': 'application/json',
      'content-length': body.length,
      'user-agent': userAgent,
      'webhook-id': id,
      'webhook-timestamp': timestamp,
      'webhook-signature': signature(webhook.secret, { id, timestamp, body }),
    }
    return post({ url, headers, body, timeoutMs: webhook.timeoutMs, signal: this.#signal })
  }
}

/**
 * @param upTo end of the batch that has failed: it is tried again as it was, so that its id names what is in it. After a change of
 *   the options, or a reset, the page may end before it.
 */
function batchOf({ txns, nextTs, rest }: FeedPage, upTo: Timestamp | undefined) {
  const [first] = txns
  if (rest !== undefined && first !== undefined) return { txns, upTo: first.commitTs }
  const again = upTo === undefined ? [] : txns.filter(({ commitTs }) => commitTs <= upTo)
  return upTo === undefined || again.length === 0
    ? { txns, upTo: nextTs }
    : { txns: again, upTo: Math.min(upTo, nextTs) }
}

/** Two messages of one id have the same transactions, because the feed has all of those in between. */
function messageId(name: string, txns: readonly FeedTxn[], part: number | undefined): string {
  const ends = [txns[0], txns.at(-1)].map((txn) => txn?.commitTs ?? 0)
  return [name, ...ends, ...(part === undefined ? [] : [part])].join('-')
}

async function bodyOf(name: string, txns: readonly FeedTxn[]): Promise<Buffer> {
  const pieces: Buffer[] = []
  let text = `{"webhook":"${name}","txns":[`
  for (const [i, txn] of txns.entries()) {
    const json = await runSliced(txnJson(txn))
    text += i === 0 ? '{' : ',{'
    if (typeof json === 'string') text += json
    else {
      pieces.push(Buffer.from(text), ...json)
      text = ''
    }
  }
  pieces.push(Buffer.from(`${text}]}`))
  return Buffer.concat(pieces)
}
