export const median = (numbers) => numbers.toSorted((a, b) => a - b)[Math.floor(numbers.length / 2)]

/** @returns undefined of no numbers. */
export function percentile(numbers, share) {
  const sorted = Float64Array.from(numbers).sort()
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))]
}

/** p50, p99 and the longest. */
export const latenciesOf = (list) => ({ p50: median(list), p99: percentile(list, 0.99), max: percentile(list, 1) })

/** Median, lowest and highest. */
export const summaryOf = (numbers) => ({
  median: median(numbers),
  min: Math.min(...numbers),
  max: Math.max(...numbers),
})
