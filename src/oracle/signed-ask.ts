import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto'

const MAC_BYTES = 32
const NONCE_BYTES = 16

export type Fields = Readonly<Record<string, unknown>>

/** `decode` returns undefined when the fields hold no such value. */
interface Coding<T> {
  encode(value: T): Fields
  decode(fields: Fields): T | undefined
}

export interface AskKind<Ask, Answer> {
  readonly name: string
  /** Limit on the bytes of an ask, MAC included; the same for answers below. */
  readonly askBytesMax: number
  readonly answerBytesMax: number
  readonly ask: Coding<Ask>
  readonly answer: Coding<Answer>
}

type AskPart<Ask> = Pick<AskKind<Ask, unknown>, 'name' | 'askBytesMax' | 'ask'>
type AnswerPart<Answer> = Pick<AskKind<unknown, Answer>, 'name' | 'answerBytesMax' | 'answer'>

/**
 * An ask names the server that it is meant for, so that no other server takes it. An eavesdropper can send it again, so each kind
 * has to say why that does no harm.
 *
 * @internal
 */
export interface AddressedAsk<Ask> {
  readonly url: string
  /** Made by `newNonce`. The answer repeats it, which binds the answer to its ask. */
  readonly nonce: string
  readonly ask: Ask
}

/** @internal */
export function newNonce(): string {
  return randomBytes(NONCE_BYTES).toString('base64url')
}

/** @param secret the 32 bytes that all servers of a table share. @internal */
export function encodeAsk<Ask>(
  { name, ask: coding }: AskPart<Ask>,
  secret: Uint8Array,
  { url, nonce, ask }: AddressedAsk<Ask>,
): Uint8Array {
  return signed(secret, `ask for ${name}`, { ...coding.encode(ask), url, nonce })
}

/**
 * @param url this server's.
 * @returns undefined when the ask is not from a server that has the secret, or is meant for another server.
 * @internal
 */
export function decodeAsk<Ask>(
  { name, askBytesMax, ask: coding }: AskPart<Ask>,
  secret: Uint8Array,
  url: string,
  bytes: Uint8Array,
): AddressedAsk<Ask> | undefined {
  const fields = verified(secret, `ask for ${name}`, bytes, askBytesMax)
  const nonce = fields?.['nonce']
  if (fields?.['url'] !== url || typeof nonce !== 'string') return undefined
  const ask = coding.decode(fields)
  return ask && { url, nonce, ask }
}

/** @param nonce of the ask. @internal */
export function encodeAnswer<Answer>(
  { name, answer: coding }: AnswerPart<Answer>,
  secret: Uint8Array,
  nonce: string,
  answer: Answer,
): Uint8Array {
  return signed(secret, `answer with ${name}`, { ...coding.encode(answer), nonce })
}

/** @returns undefined when the answer is not from a server that has the secret, or belongs to another ask. @internal */
export function decodeAnswer<Answer>(
  { name, answerBytesMax, answer: coding }: AnswerPart<Answer>,
  secret: Uint8Array,
  nonce: string,
  bytes: Uint8Array,
): Answer | undefined {
  const fields = verified(secret, `answer with ${name}`, bytes, answerBytesMax)
  return fields?.['nonce'] === nonce ? coding.decode(fields) : undefined
}

export interface Asks {
  /** Rejects when no answer signed by a server of the table arrives. */
  ask<Ask, Answer>(kind: AskKind<Ask, Answer>, url: string, ask: Ask, signal: AbortSignal): Promise<Answer>
  close(): void
}

/** Thrown by `post` when the server is there, but cannot answer now. */
export class CannotAnswer extends Error {
  override readonly name = 'CannotAnswer'
}

/** An ask without an answer. */
export class AskFailed extends Error {
  override readonly name = 'AskFailed'

  /** @param isReached the server is there, but cannot answer now. */
  constructor(
    message: string,
    readonly isReached: boolean,
    cause: unknown,
  ) {
    super(message, { cause })
  }
}

/** @param post carries an ask of the kind `name` to the server at `url`, and returns the answer. */
export function asksBy(
  secret: Uint8Array,
  post: (
    name: string,
    url: string,
    body: Uint8Array,
    answerBytesMax: number,
    signal: AbortSignal,
  ) => Promise<Uint8Array>,
): Asks['ask'] {
  return async (kind, url, ask, signal) => {
    const nonce = newNonce()
    try {
      const body = encodeAsk(kind, secret, { url, nonce, ask })
      const answer = decodeAnswer(kind, secret, nonce, await post(kind.name, url, body, kind.answerBytesMax, signal))
      if (answer === undefined) throw new Error('its answer is not signed by a server of this table')
      return answer
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error)
      throw new AskFailed(`no ${kind.name} from ${url}: ${why}`, error instanceof CannotAnswer, error)
    }
  }
}

export interface Answering {
  readonly name: string
  readonly askBytesMax: number
  /**
   * @returns undefined when the ask is refused: it is not from a server of this table, is meant for another one, or was
   *   answered before.
   * @throws KvError
   */
  answer(ask: Uint8Array): Promise<Uint8Array | undefined>
}

export function answering<Ask, Answer>(
  kind: AskKind<Ask, Answer>,
  secret: Uint8Array,
  url: string,
  answer: (ask: Ask) => Promise<Answer | undefined>,
): Answering {
  return {
    name: kind.name,
    askBytesMax: kind.askBytesMax,
    async answer(bytes) {
      const asked = decodeAsk(kind, secret, url, bytes)
      const answered = asked && (await answer(asked.ask))
      return answered && encodeAnswer(kind, secret, asked.nonce, answered)
    },
  }
}

function signed(secret: Uint8Array, purpose: string, fields: Fields): Uint8Array {
  const body = Buffer.from(JSON.stringify(fields))
  return Buffer.concat([mac(secret, purpose, body), body])
}

function verified(secret: Uint8Array, purpose: string, bytes: Uint8Array, bytesMax: number): Fields | undefined {
  if (bytes.length <= MAC_BYTES || bytes.length > bytesMax) return undefined
  const body = bytes.subarray(MAC_BYTES)
  if (!timingSafeEqual(bytes.subarray(0, MAC_BYTES), mac(secret, purpose, body))) return undefined
  try {
    const fields: unknown = JSON.parse(Buffer.from(body).toString())
    return typeof fields === 'object' && fields !== null ? (fields as Fields) : undefined
  } catch {
    return undefined // Another version of the program, which has the secret too, may send another format.
  }
}

/** The NUL separates purpose and body, so that no body can continue the purpose. */
function mac(secret: Uint8Array, purpose: string, body: Uint8Array): Buffer {
  return createHmac('sha256', secret).update(`${purpose}\0`).update(body).digest()
}
