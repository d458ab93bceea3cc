import { hostname } from 'node:os'
import { LOG_LEVELS, type Logger, type LogLevel, type LogWriter } from '../logger.js'
import { CorruptRecord } from '../percolator/codec/key.js'
import { logOutput } from './log-output.js'

/**
 * Creates the log: lines of JSON, as pino writes them. It contains no data that clients send or store (keys, values, tokens, ids
 * of transactions, cursors, idempotency keys), because readers of the log could see it, and act with some of it.
 * @param write writes one line, including its end. Default: to stdout.
 */
export function createLog(least: LogLevel | 'silent', write: (line: string) => void = logOutput()): Logger {
  const isLevelEnabled = (level: LogLevel): boolean => least !== 'silent' && LOG_LEVELS[level] >= LOG_LEVELS[least]
  const origin = { pid: process.pid, hostname: hostname() }
  const writer = (name: LogLevel): LogWriter => {
    if (!isLevelEnabled(name)) return () => {}
    return (given: string | object, message?: string) => {
      const facts = typeof given === 'string' ? { msg: given } : { ...logged(given), msg: message }
      write(`${textOf({ level: LOG_LEVELS[name], time: Date.now(), ...origin, ...facts })}\n`)
    }
  }
  return {
    ...{ trace: writer('trace'), debug: writer('debug'), info: writer('info') },
    ...{ warn: writer('warn'), error: writer('error'), fatal: writer('fatal'), isLevelEnabled },
  }
}

/** Facts that JSON cannot express are left out, since a log must not stop the server. */
function textOf({ level, time, pid, hostname, msg, ...facts }: Record<string, unknown>): string {
  try {
    return JSON.stringify({ level, time, pid, hostname, ...facts, msg })
  } catch {
    return JSON.stringify({ level, time, pid, hostname, msg })
  }
}

function logged(facts: object): object {
  return 'err' in facts ? { ...facts, err: loggedError(facts.err) } : facts
}

interface LoggedError {
  readonly type: string
  readonly code?: string
  readonly message?: string
  /** Stack frames, the innermost first. */
  readonly frames?: readonly string[]
  readonly cause?: LoggedError
}

/** Bounds the causes: a cause may be its own cause. */
const CAUSES_MAX = 8

/** Leaves out messages and fields that may hold data of clients: V8 and Node quote values in theirs. */
function loggedError(error: unknown, depth = 0): LoggedError {
  if (!(error instanceof Error)) return { type: typeof error }
  const { code } = error as NodeJS.ErrnoException
  const message = safeMessageOf(error)
  const frames = framesOf(error)
  return {
    type: error.constructor.name,
    ...(typeof code === 'string' && /^\w{1,64}$/.test(code) && { code }),
    ...(message !== undefined && { message }),
    ...(frames.length > 0 && { frames }),
    ...(error.cause instanceof Error && depth < CAUSES_MAX && { cause: loggedError(error.cause, depth + 1) }),
  }
}

/** Messages of the system and of LevelDB are about files and sockets, and so are safe. */
function safeMessageOf(error: Error): string | undefined {
  if (error instanceof CorruptRecord) return error.withoutKey
  const { code, syscall } = error as NodeJS.ErrnoException
  const isSafe = syscall !== undefined || (typeof code === 'string' && code.startsWith('LEVEL_'))
  return isSafe ? error.message : undefined
}

/** Cuts off the message first, because a message of several lines may look like frames. */
function framesOf({ stack = '', message }: Error): string[] {
  const at = stack.indexOf(message)
  if (at === -1) return []
  const lines = stack.slice(at + message.length).split('\n')
  return lines.filter((line) => line.startsWith('    at ')).map((line) => line.slice('    at '.length))
}
