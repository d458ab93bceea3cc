import { CorruptRecord } from '../percolator/codec/key.js'

export interface LoggedError {
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
export function loggedError(error: unknown, depth = 0): LoggedError {
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
