/** Counts the requests in flight and their bodies. Only a `Flight` changes the counts, and gives its share back once. */
export class InFlight {
  /** Requests whose bodies have arrived, or that have none. */
  requests = 0
  /** Requests whose bodies are still arriving: at most one per connection. */
  receiving = 0
  /** Bytes of bodies that have arrived. */
  bodyBytes = 0

  /** @param isReceiving the request has a body that is still arriving. */
  begin(isReceiving: boolean): Flight {
    return new Flight(this, isReceiving)
  }
}

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

  hold(bytes: number): void {
    if (this.#state === 'over') return
    this.#bodyBytes += bytes
    this.#counts.bodyBytes += bytes
  }

  received(): void {
    if (this.#state !== 'receiving') return
    this.#state = 'running'
    this.#counts.receiving--
    this.#counts.requests++
  }

  /** Idempotent. */
  end(): void {
    if (this.#state === 'over') return
    if (this.#state === 'receiving') this.#counts.receiving--
    else this.#counts.requests--
    this.#counts.bodyBytes -= this.#bodyBytes
    this.#state = 'over'
  }
}
