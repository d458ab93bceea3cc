import type { TSchema } from '@sinclair/typebox'

/** The body of an answer, per format that the call supports. An empty object: no body. */
export interface AnswerBody {
  /** In JSON or MessagePack, as the client prefers. */
  readonly json?: TSchema
  /** Schema of one line of a stream. */
  readonly ndjson?: TSchema
  /** Raw bytes, which no schema describes. */
  readonly octets?: true
}

export type Answers = Readonly<Record<number, AnswerBody>>

declare module 'fastify' {
  interface FastifySchema {
    /** For documents and tests. Not in `response`, because fastify would compile serializers of it. */
    readonly answers?: Answers
  }
}

export function answering(json: TSchema): { readonly answers: Answers } {
  return { answers: { 200: { json } } }
}
