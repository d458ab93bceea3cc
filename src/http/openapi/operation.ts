import type { ERRORS } from '../../errors/registry.js'
import type { Limits } from '../../limits.js'
import type { Schema } from '../wire/schemas/schema.js'

export type Tag =
  | 'Keys'
  | 'Transactions'
  | 'Observers'
  | 'Change feed'
  | 'Webhooks'
  | 'Leases'
  | 'Percolator'
  | 'Administration'
  | 'Server'

export type Code = keyof typeof ERRORS

export interface Parameter {
  readonly description: string
  /** `limits` are those of the server. */
  readonly schema: Schema | ((limits: Limits) => Schema)
}

export type RequestHeader = 'If-Match' | 'If-None-Match' | 'Idempotency-Key' | 'Last-Event-ID'
export type AnswerHeader = 'ETag' | 'Expire-Ts' | 'Idempotency-Replayed' | 'Snapshot-Ts' | 'Content-Disposition'

/**
 * The parts of a route's description that its schemas lack. Descriptions are Markdown: paragraphs, lists, code, bold text and
 * links to `#operationId`. Path, parameters of the query, schemas, and the required token come from the route itself.
 */
export interface Operation {
  /** `operationId`: stable, because generated clients name their functions by it. */
  readonly id: string
  readonly tag: Tag
  /** A few words, as in a table of contents. */
  readonly summary: string
  readonly description: string
  /** Parameters of the path whose meaning differs from parameters.ts. */
  readonly path?: Readonly<Record<string, Parameter>>
  /** Parameters of the query whose meaning differs from parameters.ts. */
  readonly query?: Readonly<Record<string, Parameter>>
  readonly headers?: readonly RequestHeader[]
  /** Describes the raw bytes of the request, where no schema describes the body. */
  readonly bytes?: string
  /** Codes besides those that every call of its kind may answer: see `problemCodes`. */
  readonly problems?: readonly Code[]
  /** By status. */
  readonly answers?: Readonly<
    Record<number, { readonly description?: string; readonly headers?: readonly AnswerHeader[] }>
  >
  /** Also lists the answers to HEAD. Every GET has a HEAD, but few have a use for it. */
  readonly head?: { readonly id: string; readonly summary: string }
}

export type Operations = Readonly<Record<string, Operation>>
