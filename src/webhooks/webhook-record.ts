import { rangeFields, rangeIn } from '../percolator/codec/given-range.js'
import { asBytes, asInteger, asText, packRecord, unpackRecord } from '../percolator/codec/record.js'
import type { Failure } from './retry-policy.js'
import type { Webhook } from './webhook.js'

const WEBHOOK = 'webhook'

export function encodeWebhook(webhook: Webhook): Buffer {
  const { id, changeTs, url, secret, range, maxAttempts, backoffMs, backoffMaxMs, timeoutMs, batch, failure } = webhook
  const options = [maxAttempts, backoffMs, backoffMaxMs, timeoutMs, batch]
  const failed = failure && [failure.attempts, failure.error, failure.upTo, failure.nextMs, failure.isParked ? 1 : 0]
  return packRecord([id, changeTs, url, secret, ...options, ...rangeFields(range), failed ?? null])
}

export function decodeWebhook(name: string, bytes: Uint8Array): Webhook {
  const fields = unpackRecord(bytes, WEBHOOK, 13)
  const [
    id,
    changeTs,
    url,
    secret,
    maxAttempts,
    backoffMs,
    backoffMaxMs,
    timeoutMs,
    batch,
    prefix,
    start,
    end,
    failed,
  ] = fields
  return {
    id: asInteger(id, WEBHOOK),
    name,
    changeTs: asInteger(changeTs, WEBHOOK),
    url: asText(url, WEBHOOK),
    secret: asBytes(secret, WEBHOOK),
    maxAttempts: asInteger(maxAttempts, WEBHOOK),
    backoffMs: asInteger(backoffMs, WEBHOOK),
    backoffMaxMs: asInteger(backoffMaxMs, WEBHOOK),
    timeoutMs: asInteger(timeoutMs, WEBHOOK),
    batch: asInteger(batch, WEBHOOK),
    range: rangeIn([prefix, start, end], WEBHOOK),
    failure: Array.isArray(failed) ? failureIn(failed) : undefined,
  }
}

function failureIn([attempts, error, upTo, nextMs, isParked]: readonly unknown[]): Failure {
  return {
    attempts: asInteger(attempts, WEBHOOK),
    error: asText(error, WEBHOOK),
    upTo: asInteger(upTo, WEBHOOK),
    nextMs: asInteger(nextMs, WEBHOOK),
    isParked: isParked === 1,
  }
}
