import type { Access } from '../admission/access.js'
import type { Work } from '../admission/admission.js'
import type { Answers } from '../wire/schemas/call-schema.js'
import type { Schema } from '../wire/schemas/schema.js'
import type { Operation } from './operation.js'

export interface DescribedRoute {
  readonly method: string
  /** With parameters as `{key}`. */
  readonly path: string
  readonly operation: Operation
  readonly access: Access
  readonly work: Work
  readonly query: readonly string[]
  readonly queryLists: readonly string[]
  readonly body: Schema | undefined
  /** A request without a body counts as `{}`. */
  readonly bodyMayBeEmpty: boolean
  /** A body that a DELETE does not need is parsed all the same, except where it could be a value. */
  readonly takesJson: boolean
  readonly hasBody: boolean
  readonly answers: Answers
}
