import { writeFileSync } from 'node:fs'
import { isatty } from 'node:tty'
import { type DestinationStream, pino } from 'pino'

const STDOUT = 1

/** Writes the log to stdout: lines of JSON, or readable text on a terminal. */
export function logOutput(): DestinationStream {
  return isatty(STDOUT) ? { write: (line) => say(readableLine(line)) } : { write: say }
}

/**
 * Writes to stdout, or drops the line: a log that cannot be written, on a full disk for example, must not stop the server.
 * pino would try the same line again and again, with nothing else running meanwhile.
 */
export function say(line: string): void {
  try {
    writeFileSync(STDOUT, line)
  } catch {}
}

/** The time of day, the level, the message, and all other fields in JSON. */
export function readableLine(line: string): string {
  const { level, time, pid: _, hostname: __, msg, ...facts } = JSON.parse(line) as Record<string, unknown>
  const clock = new Date(Number(time)).toTimeString().slice(0, 8)
  const name = pino.levels.labels[Number(level)] ?? String(level)
  const rest = Object.keys(facts).length > 0 ? ` ${JSON.stringify(facts)}` : ''
  return `${clock} ${name.padEnd(5)} ${String(msg ?? '')}${rest}\n`
}
