import { Shares } from '../../access/shares.js'

/** Counts the requests in flight and their bodies. Only a `Flight` changes the counts, and returns its share once. */
export class InFlight {
  /** Requests whose bodies have arrived, or that have none. */
  requests = 0
  /** Requests whose bodies are still arriving: at most one per connection, or stream of HTTP/2. */
  receiving = 0
  /** Bytes of bodies that have arrived. */
  bodyBytes = 0
  /** `requests` of each caller. */
  readonly shares = new Shares()

  /** @param isReceiving the body of the request is still arriving. */
  begin(isReceiving: boolean, caller: string | undefined): Flight {
    return new Flight(this, isReceiving, caller)
  }
}

export class Flight {
  readonly #counts: InFlight
  readonly #caller: string | undefined
  #state: 'receiving' | 'running' | 'over'
  #bodyBytes = 0

  constructor(counts: InFlight, isReceiving: boolean, caller: string | undefined) {
    this.#counts = counts
    this.#caller = caller
    this.#state = isReceiving ? 'receiving' : 'running'
    if (isReceiving) counts.receiving++
    else this.#run(1)
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
    this.#run(1)
  }

  #run(requests: 1 | -1): void {
    this.#counts.requests += requests
    this.#counts.shares.add(this.#caller, requests)
  }

  /** Idempotent. */
  end(): void {
    if (this.#state === 'over') return
    if (this.#state === 'receiving') this.#counts.receiving--
    else this.#run(-1)
    this.#counts.bodyBytes -= this.#bodyBytes
    this.#state = 'over'
  }
}
