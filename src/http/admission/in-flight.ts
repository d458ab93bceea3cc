/** The requests in flight and the bodies that they hold. Nothing counts but through a `Flight`, and each of those ends once. */
export class InFlight {
  /** Requests whose bodies have arrived, or that have none. */
  requests = 0
  /** Requests whose bodies are still arriving: at most one per connection. */
  receiving = 0
  /** Bytes of bodies that have arrived. */
  bodyBytes = 0

  /** @param isReceiving the request has a body, which is not here yet. */
  begin(isReceiving: boolean): Flight {
    return new Flight(this, isReceiving)
  }
}

/** What one request counts for, until `end`. */
export class Flight {
  readonly #counts: InFlight
  #state: 'receiving' | 'running' | 'over'
  #bodyBytes = 0

  constructor(counts: InFlight, isReceiving: boolean) {
    this.#counts = counts
    this.#state = isReceiving ? 'receiving' : 'running'
    if (isReceiving) counts.receiving++
    else counts.requests++
  }

  get isOver(): boolean {
    return this.#state === 'over'
  }
  get bodyBytes(): number {
    return this.#bodyBytes
  }

  /** More of the body has arrived. */
  hold(bytes: number): void {
    if (this.#state === 'over') return
    this.#bodyBytes += bytes
    this.#counts.bodyBytes += bytes
  }

  /** The body is here as a whole. */
  received(): void {
    if (this.#state !== 'receiving') return
    this.#state = 'running'
    this.#counts.receiving--
    this.#counts.requests++
  }

  /** Gives everything back. Idempotent. */
  end(): void {
    if (this.#state === 'over') return
    if (this.#state === 'receiving') this.#counts.receiving--
    else this.#counts.requests--
    this.#counts.bodyBytes -= this.#bodyBytes
    this.#state = 'over'
  }
}
