/** Counts of values by buckets. Counting costs a few comparisons, and allocates nothing. */
export class Histogram {
  /** Upper bounds, ascending. */
  readonly bounds: readonly number[]
  /** `counts[i]` values are at most `bounds[i]` and above the bound before; the last one counts values above all bounds. */
  readonly counts: Float64Array
  sum = 0

  constructor(bounds: readonly number[]) {
    this.bounds = bounds
    this.counts = new Float64Array(bounds.length + 1)
  }

  observe(value: number): void {
    let at = 0
    while (at < this.bounds.length && value > (this.bounds[at] as number)) at++
    ;(this.counts[at] as number)++
    this.sum += value
  }
}

export const SECONDS = [
  0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30,
] as const
export const COUNTS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024] as const
export const BYTES = [256, 1024, 4096, 16_384, 65_536, 262_144, 1_048_576, 4_194_304, 16_777_216] as const
