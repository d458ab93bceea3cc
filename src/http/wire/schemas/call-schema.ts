import type { TSchema } from '@sinclair/typebox'

/** The body of an answer in each format that the call has. Without any there is no body. */
export interface AnswerBody {
  /** In JSON or MessagePack, as the client prefers. */
  readonly json?: TSchema
  /** One line of a stream. */
  readonly ndjson?: TSchema
  /** Bytes that no schema describes. */
  readonly octets?: true
}

/** The successes of a call, by status. */
export type Answers = Readonly<Record<number, AnswerBody>>

declare module 'fastify' {
  interface FastifySchema {
    /** For documents and tests only. fastify makes serializers of `response`, so the answers do not stand there. */
    readonly answers?: Answers
  }
}

/** 200 with one body. */
export function answering(json: TSchema): { readonly answers: Answers } {
  return { answers: { 200: { json } } }
}
