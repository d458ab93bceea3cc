import { Histogram, SECONDS } from './histogram.js'

/** For answers that are sent for as long as the client listens. */
const STREAM_SECONDS = [1, 10, 60, 600, 3600, 21_600, 86_400] as const

export class RouteMeter {
  /** Seconds from the head of a request to the end of its answer. */
  readonly answers = new Map<number, Histogram>()
  /** The same for streams. */
  readonly streams = new Map<number, Histogram>()

  constructor(
    readonly method: string,
    /** The pattern of the route; the client's path is never a label. */
    readonly route: string,
  ) {}

  answered(status: number, seconds: number, isStream = false): void {
    const all = isStream ? this.streams : this.answers
    let histogram = all.get(status)
    if (histogram === undefined) {
      histogram = new Histogram(isStream ? STREAM_SECONDS : SECONDS)
      all.set(status, histogram)
    }
    histogram.observe(seconds)
  }
}

export class HttpMeters {
  readonly #routes = new Map<string, RouteMeter>()
  /** Problems by their code. */
  readonly problems = new Map<string, number>()

  /** @param route the pattern of a route, or one of a few other names. */
  of(method: string, route: string): RouteMeter {
    const name = `${method} ${route}`
    let meter = this.#routes.get(name)
    if (meter === undefined) {
      meter = new RouteMeter(method, route)
      this.#routes.set(name, meter)
    }
    return meter
  }

  get routes(): Iterable<RouteMeter> {
    return this.#routes.values()
  }

  problem(code: string): void {
    this.problems.set(code, (this.problems.get(code) ?? 0) + 1)
  }
}
