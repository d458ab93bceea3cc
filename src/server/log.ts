import { hostname } from 'node:os'
import { cutText } from '../bytes/cut-text.js'
import { LOG_LEVELS, type Logger, type LogLevel, type LogWriter } from '../logger.js'
import { say } from './log-output.js'
import { loggedError } from './logged-error.js'
import { printable } from './printable.js'

/**
 * Creates the log: lines of JSON. It contains no data that clients send or store (keys, values, tokens, ids of transactions,
 * cursors, idempotency keys), because readers of the log could see it, and act with some of it.
 * @param write writes one line, including its end. Default: to stdout.
 */
export function createLog(least: LogLevel | 'silent', write: (line: string) => void = say): Logger {
  const isLevelEnabled = (level: LogLevel): boolean => least !== 'silent' && LOG_LEVELS[level] >= LOG_LEVELS[least]
  const writer = (name: LogLevel): LogWriter => {
    if (!isLevelEnabled(name)) return () => {}
    return (given: string | object, message?: string) => {
      write(typeof given === 'string' ? logLine(name, {}, given) : logLine(name, logged(given), message ?? ''))
    }
  }
  return {
    ...{ trace: writer('trace'), debug: writer('debug'), info: writer('info') },
    ...{ warn: writer('warn'), error: writer('error'), fatal: writer('fatal'), isLevelEnabled },
  }
}

/** Docker cuts longer lines in two. */
const LINE_BYTES_MAX = 16_384
/** Of a line that is too long: the bytes of each text, and the entries of each list. */
const TEXT_BYTES_MAX = 1024
const ENTRIES_MAX = 8

/** One line of JSON, including its end. Facts that JSON cannot express are left out, since a log must not stop the server. */
export function logLine(level: LogLevel, facts: object, message: string): string {
  const head = { level, time: new Date().toISOString(), pid: process.pid, hostname: hostname() }
  const cut = { cut: true, msg: cutText(message, TEXT_BYTES_MAX) }
  for (const told of [{ ...facts, msg: message }, { ...facts, ...cut }, cut])
    try {
      const text = JSON.stringify({ ...head, ...told }, 'cut' in told ? shortened : undefined)
      if (Buffer.byteLength(text) <= LINE_BYTES_MAX) return `${printable(text)}\n`
    } catch {}
  return `${printable(JSON.stringify({ ...head, ...cut }))}\n`
}

function shortened(_: string, value: unknown): unknown {
  if (typeof value === 'string') return cutText(value, TEXT_BYTES_MAX)
  return Array.isArray(value) ? value.slice(0, ENTRIES_MAX) : value
}

function logged(facts: object): object {
  return 'err' in facts ? { ...facts, err: loggedError(facts.err) } : facts
}
