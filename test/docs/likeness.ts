/** Values that are others in each run, and that must be equal where they are shown to be equal. */
const NAMES = [
  /\b\d{16}\b/, // Timestamps.
  /(?<="(?:txn|cursor|pin|id)":")[\w-]{16,}/,
  /(?<=id: s\.\d{16}\.)[\w-]+/,
]

/** Values that are others in each run, and mean nothing elsewhere. */
const FREE = [
  /(?<=[Dd]ate: )\w{3}, \d\d \w{3} \d{4} [\d:]{8} GMT/,
  /\d{4}-\d\d-\d\dT[\d:]{8}(?:\.\d+)?Z/,
  /(?<="(?:lag_ms|uptime_ms|expires_in_ms|started_at_ms|duration_ms|loop_delay_ms|age_ms)":)\d+/,
  /(?<="ttl":)2\d{4}\b/, // Of a lock of the server’s own transactions: 20 s and the time since its start.
  /\b\d[\d,.]*(?:\/s| (?:µs|ms|s))\b/,
]

/**
 * Compares what commands print with what a document shows. Timestamps and ids of a run are bound to those of the document, one to
 * one; `…` of a document stands for anything.
 */
export class Likeness {
  private readonly shownOf = new Map<string, string>()
  private readonly actualOf = new Map<string, string>()

  /** The command with the names of this run in place of those of the document, as a reader would copy them. */
  inThisRun(command: string): string {
    return replaceAll(command, this.actualOf)
  }

  /**
   * `actual` in the values of the document: a line of `shown` where the two are alike, others as they are.
   * @param vary more that is different in each run.
   */
  express(shown: readonly string[], actual: readonly string[], vary: readonly RegExp[] = []): string[] {
    return actual.map((line, i) => {
      const wanted = shown[i]
      return wanted !== undefined && this.isAlike(wanted, line, vary) ? wanted : replaceAll(line, this.shownOf)
    })
  }

  private isAlike(shown: string, actual: string, vary: readonly RegExp[]): boolean {
    const kinds = [...NAMES, ...vary, ...FREE]
    const any = new RegExp(kinds.map(({ source }) => `(${source})`).join('|'), 'g')
    const names: string[] = []
    let pattern = ''
    let end = 0
    for (const { index, 0: text, ...groups } of shown.matchAll(any)) {
      const kind = kinds.findIndex((_, i) => groups[i + 1] !== undefined)
      const isName = kind < NAMES.length
      if (isName) names.push(text)
      pattern += `${literal(shown.slice(end, index))}${isName ? '(' : '(?:'}${kinds[kind]?.source})`
      end = index + text.length
    }
    const match = new RegExp(`^${pattern}${literal(shown.slice(end))}$`, 's').exec(actual)
    if (match === null) return false
    return names.every((name, i) => this.bind(name, match[i + 1] ?? ''))
  }

  private bind(shown: string, actual: string): boolean {
    const known = this.actualOf.get(shown)
    if (known !== undefined || this.shownOf.has(actual)) return known === actual
    this.actualOf.set(shown, actual)
    this.shownOf.set(actual, shown)
    return true
  }
}

/** `…` stands for anything, and spaces that make columns for any number of them. */
function literal(text: string): string {
  return text
    .replaceAll(/[\\^$.*+?()[\]{}|]/g, '\\$&')
    .replaceAll('…', '.*?')
    .replaceAll(/ {2,}/g, ' +')
}

function replaceAll(text: string, values: ReadonlyMap<string, string>): string {
  return text
    .replaceAll(/[\w-]{16,}/g, (word) => values.get(word) ?? word)
    .replaceAll(/\d{16}/g, (ts) => values.get(ts) ?? ts)
}
