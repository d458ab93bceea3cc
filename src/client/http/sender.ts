interface SentRequest {
  readonly method: string
  readonly headers: Readonly<Record<string, string>>
  readonly body?: Uint8Array<ArrayBuffer>
  readonly signal: AbortSignal
}

export interface ReceivedAnswer {
  readonly status: number
  readonly headers: Pick<Headers, 'get'>
  /** The whole body. Rejects with AnswerTooLong, and when the answer is cut short. */
  arrayBuffer(bytesMax: number): Promise<ArrayBuffer>
  /** The body as it arrives, read no faster than the caller asks. Throws when the answer is cut short. */
  chunks(): AsyncIterable<Uint8Array>
}

export class AnswerTooLong extends Error {
  constructor(bytesMax: number) {
    super(`an answer of over ${bytesMax} bytes`)
  }
}

export interface Sender {
  /** @param path begins with a slash. @returns once the status is known. Rejects with the signal's reason after an abort. */
  send(path: string, request: SentRequest): Promise<ReceivedAnswer>
  /** Closes idle connections. */
  close(): void
}
