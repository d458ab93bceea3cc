import { writeFileSync } from 'node:fs'
import { isatty } from 'node:tty'
import { LOG_LEVELS } from '../logger.js'

const STDOUT = 1

export function logOutput(): (line: string) => void {
  return isatty(STDOUT) ? (line) => say(readableLine(line)) : say
}

/** Writes to stdout, or drops the line: a log that cannot be written, on a full disk for example, must not stop the server. */
export function say(line: string): void {
  try {
    writeFileSync(STDOUT, line)
  } catch {}
}

const NAMES: ReadonlyMap<number, string> = new Map(Object.entries(LOG_LEVELS).map(([name, level]) => [level, name]))

/** The time of day, the level, the message, and all other fields in JSON. @internal */
export function readableLine(line: string): string {
  const { level, time, pid: _, hostname: __, msg, ...facts } = JSON.parse(line) as Record<string, unknown>
  const clock = new Date(Number(time)).toTimeString().slice(0, 8)
  const name = NAMES.get(Number(level)) ?? String(level)
  const rest = Object.keys(facts).length > 0 ? ` ${JSON.stringify(facts)}` : ''
  return `${clock} ${name.padEnd(5)} ${String(msg ?? '')}${rest}\n`
}
