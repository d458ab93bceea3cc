import { Random as Choices } from '../harness/random.mjs'

/** Of the standard normal distribution: 99 % of it is below. */
const NORMAL_P99 = 2.326348

export class Random extends Choices {
  /** Time until the next of events that come by themselves, `rate` of them per unit of time. */
  until(rate) {
    return -Math.log(1 - this.next()) / rate
  }

  normal() {
    return Math.sqrt(-2 * Math.log(1 - this.next())) * Math.cos(2 * Math.PI * this.next())
  }

  /** How many events there are where `mean` are expected. */
  poisson(mean) {
    if (mean > 50) return Math.max(0, Math.round(mean + Math.sqrt(mean) * this.normal()))
    let count = 0
    for (let time = this.until(1); time < mean; time += this.until(1)) count++
    return count
  }
}

/**
 * Draws latencies in ms.
 * @param spread `{ medianMs, p99Ms }`: a lognormal distribution, which has a long tail; or `{ samples }`, drawn from as they are.
 */
export function latencyOf({ medianMs, p99Ms, samples }, random) {
  if (samples !== undefined) return () => samples[random.below(samples.length)]
  const sigma = Math.log(p99Ms / medianMs) / NORMAL_P99
  return sigma === 0 ? () => medianMs : () => medianMs * Math.exp(sigma * random.normal())
}
