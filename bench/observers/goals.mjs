// Numbers with what is wanted of them.

/**
 * @param goal the number to reach, or not to exceed when `isAtMost`.
 * @param floor what a sound checkout reaches on a busy machine: `--quick` fails beyond it.
 */
export function row(name, value, { unit = '', goal, floor, isAtMost = false, spread } = {}) {
  const reaches = (bound) => (isAtMost ? value <= bound : value >= bound)
  return {
    name,
    value,
    unit,
    goal: goal === undefined ? '' : `${isAtMost ? '≤' : '≥'} ${goal}`,
    reached: goal === undefined ? '' : reaches(goal) ? 'yes' : 'no',
    spread: spread === undefined ? '' : `${spread.map((end) => Number(end.toPrecision(3))).join(' to ')}`,
    isBelowFloor: floor !== undefined && !reaches(floor),
  }
}

export function percentile(numbers, share) {
  const sorted = Float64Array.from(numbers).sort()
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))]
}
