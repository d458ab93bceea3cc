import type { Grant } from '../../access/grant.js'
import type { KvError } from '../../errors/kv-error.js'

declare module 'node:http' {
  interface IncomingMessage {
    /** undefined where no token is asked for. */
    letIn?: LetIn
  }
}

/** A request that was let in by its token. The tokens may be read again while it waits. */
export interface LetIn {
  /** @throws KvError `unauthorized`, `forbidden` when the token does not let it in any more. */
  require(): void
  /**
   * Calls `ended` once, when the token does not let the request in any more.
   * @param requires throws KvError `forbidden` for rights that are not enough. Absent: the token must have all the rights that it had.
   * @returns a function that ends this.
   */
  follow(ended: (error: KvError) => void, requires?: (grant: Grant) => void): () => void
}
