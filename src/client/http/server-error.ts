/**
 * An answer that says no, with a code that this version of the client gives no class of its own: `internal`, `timeout`,
 * `unauthorized`, `forbidden`, and codes of newer servers. `unexpected_answer` when there is no code at
 * all: whoever answered is not PerKV, or something stands in between.
 */
export class ServerError extends Error {
  override readonly name = 'ServerError'
  /** False where the server refused the call, by a status below 500: nothing was changed. */
  readonly mayHaveTakenEffect: boolean
  constructor(
    readonly code: string,
    detail: string,
    /** Of the HTTP answer. */
    readonly status: number,
    /** What else the problem says, names in camelCase. */
    readonly fields: Readonly<Record<string, unknown>> = {},
    options?: ErrorOptions,
  ) {
    super(detail, options)
    // Success with a body that makes no sense is no refusal.
    this.mayHaveTakenEffect = status >= 500 || status < 300
  }
}
