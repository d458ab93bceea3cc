import { type DestinationStream, type Logger, pino } from 'pino'
import { CorruptRecord } from '../percolator/codec/key.js'
import { logOutput } from './log-output.js'

/**
 * The log. Nothing that clients send or store is in it, be it a key, a value, a token, the id of a
 * transaction, a cursor or an idempotency key: whoever reads the log could see it, and act with some of it.
 * @param destination default: stdout.
 */
export function createLog(level: string, destination: DestinationStream = logOutput()): Logger {
  return pino({ level, serializers: { err: loggedError } }, destination)
}

interface LoggedError {
  readonly type: string
  readonly code?: string
  readonly message?: string
  /** Where it was thrown, the innermost frame first. */
  readonly frames?: readonly string[]
  readonly cause?: LoggedError
}

/** Messages of other errors, and their own fields, may hold anything: V8 and Node quote values in theirs. */
export function loggedError(error: unknown): LoggedError {
  if (!(error instanceof Error)) return { type: typeof error }
  const { code } = error as NodeJS.ErrnoException
  const message = safeMessageOf(error)
  const frames = framesOf(error)
  return {
    type: error.constructor.name,
    ...(typeof code === 'string' && /^\w{1,64}$/.test(code) && { code }),
    ...(message !== undefined && { message }),
    ...(frames.length > 0 && { frames }),
    ...(error.cause instanceof Error && { cause: loggedError(error.cause) }),
  }
}

/** What the system and LevelDB say is about files and sockets. */
function safeMessageOf(error: Error): string | undefined {
  if (error instanceof CorruptRecord) return error.withoutKey
  const { code, syscall } = error as NodeJS.ErrnoException
  return syscall !== undefined || code?.startsWith('LEVEL_') ? error.message : undefined
}

/** A message of several lines may look like frames. */
function framesOf({ stack = '', message }: Error): string[] {
  const at = stack.indexOf(message)
  if (at === -1) return []
  const lines = stack.slice(at + message.length).split('\n')
  return lines.filter((line) => line.startsWith('    at ')).map((line) => line.slice('    at '.length))
}
