import { fstatSync, writeFileSync } from 'node:fs'
import { isatty } from 'node:tty'
import type { LogFormat } from './config.js'
import type { LoggedError } from './logged-error.js'
import { printable } from './printable.js'

const STDOUT = 1

/**
 * Text where people read it: on a terminal, and in systemd's journal, which has fields of its own.
 * @param journal `JOURNAL_STREAM`, which names the journal's stream by device and inode. Programs that a unit starts inherit it,
 *   wherever their stdout leads.
 */
export function formatOfStdout(journal: string | undefined): LogFormat {
  if (isatty(STDOUT)) return 'text'
  if (journal === undefined) return 'json'
  try {
    // Not as numbers: after that, Node 20 imports the next package that is a link by the link's path, and finds none of its own.
    const { dev, ino } = fstatSync(STDOUT, { bigint: true })
    return journal === `${dev}:${ino}` ? 'text' : 'json'
  } catch {
    return 'json'
  }
}

/** @returns what writes a line of JSON in that format. */
export function logOutput(format: LogFormat): (line: string) => void {
  return format === 'text' ? (line) => say(readableLine(line)) : say
}

/** Writes to stdout, or drops the line: a log that cannot be written, on a full disk for example, must not stop the server. */
export function say(line: string): void {
  try {
    writeFileSync(STDOUT, line)
  } catch {}
}

/** The time, the level, the message, and facts as `name=value`; an error in lines of its own. @internal */
export function readableLine(line: string): string {
  const { level, time, pid: _, hostname: __, msg, err, ...facts } = JSON.parse(line) as Record<string, unknown>
  const told = Object.entries(facts).map(([name, value]) => ` ${name}=${valueText(value)}`)
  const head = `${time} ${String(level).padEnd(5)} ${printable(String(msg ?? ''))}${told.join('')}`
  return `${[head, ...errorLines(err as LoggedError | undefined)].join('\n')}\n`
}

function valueText(value: unknown): string {
  return typeof value === 'string' && /^[\w.:/@%+-]+$/.test(value) ? value : printable(JSON.stringify(value))
}

function errorLines(error: LoggedError | undefined, by = ''): string[] {
  if (error === undefined) return []
  const { type, code, message, frames = [], cause } = error
  const name = `${type}${code === undefined ? '' : ` [${code}]`}${message === undefined ? '' : `: ${message}`}`
  return [
    `  ${by}${printable(name)}`,
    ...frames.map((frame) => `      at ${printable(frame)}`),
    ...errorLines(cause, 'caused by '),
  ]
}
