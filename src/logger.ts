export const LOG_LEVELS = { trace: 10, debug: 20, info: 30, warn: 40, error: 50, fatal: 60 } as const

export type LogLevel = keyof typeof LOG_LEVELS

/** Writes one line with a message and facts. An error is passed as `err`. */
export interface LogWriter {
  (message: string): void
  (facts: object, message: string): void
}

export interface Logger extends Readonly<Record<LogLevel, LogWriter>> {
  isLevelEnabled(level: LogLevel): boolean
}
