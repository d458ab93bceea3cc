import { WEBHOOK_CONSUMERS } from '../changes/rules/consumer.js'
import { KvError } from '../errors/kv-error.js'
import type { GivenRange } from '../percolator/given-range.js'
import type { Timestamp } from '../timestamp.js'
import type { Failure, RetryOptions } from './retry-policy.js'

export interface WebhookOptions extends RetryOptions {
  /** Longest time from the beginning of a request to the head of its answer. */
  readonly timeoutMs: number
  /** Most transactions in one request. */
  readonly batch: number
}

export interface Webhook extends WebhookOptions {
  /** Timestamp of its creation. */
  readonly id: Timestamp
  readonly name: string
  readonly url: string
  /** Signs what is sent. */
  readonly secret: Uint8Array
  readonly range: GivenRange
  /** Of the batch above the position; absent: its last delivery has succeeded. */
  readonly failure: Failure | undefined
  /** Of the last change of this record: no two of its values may be equal. */
  readonly changeTs: Timestamp
}

/** The position of a webhook is that of a consumer with this name. */
export function consumerOf(webhook: string): string {
  return `${WEBHOOK_CONSUMERS}${webhook}`
}

export function noSuchWebhook(name: string): KvError<'not_found'> {
  return new KvError('not_found', `there is no webhook ${name}`, {})
}
