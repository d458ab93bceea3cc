import { type Schema, Type } from './schema.js'
import { described, optional } from './values.js'

/** The body of an answer, per format that the call supports. An empty object: no body. */
export interface AnswerBody {
  /** In JSON or MessagePack, as the client prefers. */
  readonly json?: Schema
  /** Schema of one line of a stream. */
  readonly ndjson?: Schema
  /** Schema of the data of each server-sent event, by its name. */
  readonly events?: Readonly<Record<string, Schema>>
  /** Raw bytes, which no schema describes. */
  readonly octets?: true
  /** Media type of a text, which no schema describes. */
  readonly text?: string
}

export type Answers = Readonly<Record<number, AnswerBody>>

declare module 'fastify' {
  interface FastifySchema {
    /** For documents and tests. Not in `response`, because fastify would compile serializers of it. */
    readonly answers?: Answers
  }
}

export function answeringPage(field: string, entry: Schema, order: string) {
  return answering(
    Type.Object({
      [field]: described(Type.Array(entry), order),
      cursor: described(optional(Type.String()), 'Of the next page. Absent: this was the last one.'),
    }),
  )
}

export function answering(json: Schema): { readonly answers: Answers } {
  return { answers: { 200: { json } } }
}
