import type { Grant } from '../../access/grant.js'
import type { KvError } from '../../errors/kv-error.js'

declare module 'node:http' {
  interface IncomingMessage {
    /** undefined when no token is needed. */
    letIn?: LetIn
  }
}

/** The right of a request, which its token may lose while it waits. */
export interface LetIn {
  /** @throws KvError `unauthorized`, `forbidden` when the token has lost its rights. */
  require(): void
  /**
   * Calls `ended` once, when the token loses the request's rights.
   * @param requires throws KvError `forbidden` for insufficient rights. Absent: the token must have all the rights that it had.
   * @returns a function that removes `ended`.
   */
  follow(ended: (error: KvError) => void, requires?: (grant: Grant) => void): () => void
}
