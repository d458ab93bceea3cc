import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto'
import { isTimestampAnswer, isTimestampAsk, type TimestampAnswer, type TimestampAsk } from './timestamp-ask.js'

/** Of an ask or an answer between servers, with its MAC. */
export const SIGNED_BYTES_MAX = 4096

const MAC_BYTES = 32
const NONCE_BYTES = 16
const ASK = 'ask for timestamps'
const ANSWER = 'answer with timestamps'

/**
 * An ask names the server that it is meant for, so that no other one takes it. Whoever can listen can send it again: that
 * costs timestamps, as many as the leader's bound on how far they run ahead allows, and is told to nobody who could use them.
 */
export interface AddressedAsk {
  /** Of the server that is asked. */
  readonly url: string
  /** Of `newNonce`. The answer repeats it, so that an answer belongs to its ask. */
  readonly nonce: string
  readonly ask: TimestampAsk
}

export function newNonce(): string {
  return randomBytes(NONCE_BYTES).toString('base64url')
}

/** @param secret the 32 bytes that all servers of a table share. */
export function encodeAsk(secret: Uint8Array, { url, nonce, ask }: AddressedAsk): Uint8Array {
  return signed(secret, ASK, { url, nonce, count: ask.count, floor: ask.floor })
}

/**
 * @param url of the server that was asked.
 * @returns undefined when the ask is not from a server that has the secret, or not for this one.
 */
export function decodeAsk(secret: Uint8Array, url: string, bytes: Uint8Array): AddressedAsk | undefined {
  const body = verified(secret, ASK, bytes)
  if (body?.['url'] !== url || typeof body['nonce'] !== 'string' || !isTimestampAsk(body)) return undefined
  return { url, nonce: body['nonce'], ask: { count: body.count, floor: body.floor } }
}

/** @param nonce of the ask. */
export function encodeAnswer(secret: Uint8Array, nonce: string, answer: TimestampAnswer | 'not_leader'): Uint8Array {
  if (answer === 'not_leader') return signed(secret, ANSWER, { nonce, not_leader: true })
  return signed(secret, ANSWER, { nonce, last: answer.last, now_ms: answer.nowMs })
}

/** @returns undefined when the answer is not from a server that has the secret, or not for the ask with this nonce. */
export function decodeAnswer(
  secret: Uint8Array,
  nonce: string,
  bytes: Uint8Array,
): TimestampAnswer | 'not_leader' | undefined {
  const body = verified(secret, ANSWER, bytes)
  if (body?.['nonce'] !== nonce) return undefined
  if (body['not_leader'] === true) return 'not_leader'
  const answer = { last: body['last'], nowMs: body['now_ms'] }
  return isTimestampAnswer(answer) ? answer : undefined
}

function signed(secret: Uint8Array, purpose: string, fields: object): Uint8Array {
  const body = Buffer.from(JSON.stringify(fields))
  return Buffer.concat([mac(secret, purpose, body), body])
}

function verified(secret: Uint8Array, purpose: string, bytes: Uint8Array): Record<string, unknown> | undefined {
  if (bytes.length <= MAC_BYTES || bytes.length > SIGNED_BYTES_MAX) return undefined
  const body = bytes.subarray(MAC_BYTES)
  if (!timingSafeEqual(bytes.subarray(0, MAC_BYTES), mac(secret, purpose, body))) return undefined
  try {
    const fields: unknown = JSON.parse(Buffer.from(body).toString())
    return typeof fields === 'object' && fields !== null ? (fields as Record<string, unknown>) : undefined
  } catch {
    return undefined // Another version of the program, which has the secret too.
  }
}

/** The purpose has an end of its own, so that no body continues it. */
function mac(secret: Uint8Array, purpose: string, body: Uint8Array): Buffer {
  return createHmac('sha256', secret).update(`${purpose}\0`).update(body).digest()
}
