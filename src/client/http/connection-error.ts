/** The server sent no usable answer within the time for retries. */
export class ConnectionError extends Error {
  override readonly name = 'ConnectionError'
  readonly code = 'connection_failed'
  /** False for reads, and when no request can have reached the server: nothing has changed. */
  readonly mayHaveTakenEffect: boolean

  constructor(message: string, options: ErrorOptions & { readonly mayHaveTakenEffect: boolean }) {
    super(message, options)
    this.mayHaveTakenEffect = options.mayHaveTakenEffect
  }
}
