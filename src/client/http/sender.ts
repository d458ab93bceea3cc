/** One request as it goes to the network. */
interface SentRequest {
  readonly method: string
  readonly headers: Readonly<Record<string, string>>
  readonly body?: Uint8Array<ArrayBuffer>
  readonly signal: AbortSignal
}

/** An answer whose body is read in one of two ways. */
export interface ReceivedAnswer {
  readonly status: number
  readonly headers: Pick<Headers, 'get'>
  /** The whole body. Rejects when the answer is cut short, and with AnswerTooLong. */
  arrayBuffer(bytesMax: number): Promise<ArrayBuffer>
  /** The body as it arrives, read no faster than the caller asks. Throws when the answer is cut short. */
  chunks(): AsyncIterable<Uint8Array>
}

export class AnswerTooLong extends Error {
  constructor(bytesMax: number) {
    super(`an answer of over ${bytesMax} bytes`)
  }
}

/** The way to one server. Sends each request once, and follows no redirects. */
export interface Sender {
  /** @param path begins with a slash. @returns once the status is known. Rejects with the signal's reason after an abort. */
  send(path: string, request: SentRequest): Promise<ReceivedAnswer>
  /** Closes the connections that no request uses. */
  close(): void
}
