/** Characters of a caller's name that a message repeats. */
const SHOWN_LENGTH_MAX = 100
/** No name of the server is nearly as long as this, and looking for the nearest one costs the product of both lengths. */
const COMPARED_LENGTH_MAX = 64

export function nameInError(name: string): string {
  return name.length > SHOWN_LENGTH_MAX ? `${name.slice(0, SHOWN_LENGTH_MAX).toWellFormed()}…` : name
}

/** The end of a message about an unknown name: `: did you mean ttl_ms?`, or nothing when no known name is near. */
export function didYouMean(name: string, known: Iterable<string>): string {
  const nearest = nearestName(name, known)
  return nearest === undefined ? '' : `: did you mean ${nearest}?`
}

/**
 * The known name that was probably meant by an unknown one: up to a third of it is mistyped, or the unknown name is its
 * beginning. `ttl`, `ttlMs`, `TTL-MS` and `tll_ms` are near to `ttl_ms`.
 */
export function nearestName(name: string, known: Iterable<string>): string | undefined {
  if (name.length > COMPARED_LENGTH_MAX) return undefined
  const given = bare(name)
  let nearest: string | undefined
  let least = Number.POSITIVE_INFINITY
  for (const candidate of known) {
    const wanted = bare(candidate)
    const isBeginning = given.length > 1 && wanted.startsWith(given)
    const most = isBeginning ? wanted.length : Math.max(1, Math.floor(Math.max(given.length, wanted.length) / 3))
    if (Math.abs(given.length - wanted.length) > most) continue
    const mistakes = distance(given, wanted)
    // All characters of a short name may be wrong: then nothing is left that tells what was meant.
    if (mistakes > most || mistakes >= wanted.length || mistakes >= least) continue
    nearest = candidate
    least = mistakes
  }
  return nearest
}

/** Removes separators and case. */
function bare(name: string): string {
  return name.replaceAll(/[-_]/g, '').toLowerCase()
}

/** Number of insertions, deletions, replacements and swaps of neighbours between `a` and `b` (optimal string alignment). */
function distance(a: string, b: string): number {
  let beforeLast: readonly number[] = []
  let last: readonly number[] = Array.from({ length: b.length + 1 }, (_, j) => j)
  for (let i = 1; i <= a.length; i++) {
    const row = [i]
    for (let j = 1; j <= b.length; j++) {
      const isSame = a[i - 1] === b[j - 1]
      let least = Math.min(at(last, j) + 1, at(row, j - 1) + 1, at(last, j - 1) + (isSame ? 0 : 1))
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1])
        least = Math.min(least, at(beforeLast, j - 2) + 1)
      row.push(least)
    }
    beforeLast = last
    last = row
  }
  return at(last, b.length)
}

function at(row: readonly number[], index: number): number {
  return row[index] ?? Number.POSITIVE_INFINITY
}
