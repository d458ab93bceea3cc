import { createHmac, randomBytes } from 'node:crypto'
import { invalid } from '../errors/kv-error.js'

const PREFIX = 'whsec_'
const NEW_BYTES = 32
/** Bounds of Standard Webhooks. */
const [BYTES_MIN, BYTES_MAX] = [24, 64]

export function newSecret(): Uint8Array {
  return randomBytes(NEW_BYTES)
}

export function secretText(secret: Uint8Array): string {
  return `${PREFIX}${Buffer.from(secret).toString('base64')}`
}

/** @throws KvError `invalid_argument`, which does not repeat the text. */
export function secretIn(text: string): Uint8Array {
  const secret = Buffer.from(text.slice(PREFIX.length), 'base64')
  if (secret.length < BYTES_MIN || secret.length > BYTES_MAX || secretText(secret) !== text)
    throw invalid('secret', `secret must be ${PREFIX} and base64 of ${BYTES_MIN} to ${BYTES_MAX} bytes`)
  return secret
}

/** The header `webhook-signature` of Standard Webhooks. */
export function signature(
  secret: Uint8Array,
  { id, timestamp, body }: { readonly id: string; readonly timestamp: number; readonly body: Uint8Array },
): string {
  const digest = createHmac('sha256', secret).update(`${id}.${timestamp}.`).update(body).digest('base64')
  return `v1,${digest}`
}
