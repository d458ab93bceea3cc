import { appendFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { homedir } from 'node:os'
import { dirname, join } from 'node:path'

export const HISTORY_LINES_MAX = 1000

/** Lines of earlier shells, in a file that only the user may read. Errors of the file are ignored. */
export class HistoryFile {
  readonly #path: string | undefined

  /** @param path undefined keeps no history. */
  constructor(path: string | undefined) {
    this.#path = path
  }

  static pathOf(env: NodeJS.ProcessEnv): string {
    const state = env['XDG_STATE_HOME']
    const directory = state?.startsWith('/') ? state : join(env['HOME'] || homedir(), '.local', 'state')
    return join(directory, 'perkv', 'history')
  }

  /** Lines, newest first. A file that has grown long is cut. */
  load(): string[] {
    if (this.#path === undefined) return []
    try {
      const lines = readFileSync(this.#path, 'utf8').split('\n').filter(Boolean)
      const kept = lines.slice(-HISTORY_LINES_MAX)
      if (lines.length > 2 * HISTORY_LINES_MAX) writeFileSync(this.#path, `${kept.join('\n')}\n`, { mode: 0o600 })
      return kept.reverse()
    } catch {
      return []
    }
  }

  /** Ignores a line that begins with a blank. */
  add(line: string): void {
    if (this.#path === undefined || line === '' || line.startsWith(' ')) return
    try {
      mkdirSync(dirname(this.#path), { recursive: true, mode: 0o700 })
      appendFileSync(this.#path, `${line}\n`, { mode: 0o600 })
    } catch {}
  }
}
