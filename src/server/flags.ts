import { type ParseArgsConfig, parseArgs } from 'node:util'
import { didYouMean, nameInError, nearestName } from '../errors/nearest-name.js'

/**
 * A flag of a command. `--key-bytes-max` is `PERKV_KEY_BYTES_MAX` in the environment, unless the flag names another variable, or
 * `false` for none.
 */
export interface Flag {
  readonly variable?: string | false
  /** Name of the value in the help. Absent: the flag is a switch, which the environment sets with 1 or true. */
  readonly value?: string
  readonly help: string
  readonly default?: string
}

export type Flags = Readonly<Record<string, Flag>>

export interface Given {
  readonly text: string
  readonly from: string
}

/** A flag, variable or argument cannot be used. The message is one line for people. */
export class UsageError extends Error {
  override readonly name = 'UsageError'
}

export interface FlagReader<Name extends string> {
  /** Reads flags, then `PERKV_*`, then defaults. */
  optional(name: Name): Given | undefined
  /** @throws UsageError when nothing was given and there is no default. */
  required(name: Name): Given
  isSet(name: Name): boolean
  readonly positionals: readonly string[]
}

/**
 * @param operands names of the positional arguments, for messages. Each must be given, except those in `[brackets]`; one with
 *   `...` stands for any number.
 * @throws UsageError
 */
export function readFlags<F extends Flags>(
  flags: F,
  args: readonly string[],
  env: NodeJS.ProcessEnv,
  operands: readonly string[] = [],
): FlagReader<keyof F & string> {
  const { values, positionals } = parse(flags, args, operands.length > 0)
  const missing = operands[positionals.length]
  if (missing !== undefined && !missing.startsWith('[')) throw new UsageError(`${missing} is missing`)
  const isOpen = operands.at(-1)?.includes('...') === true
  if (positionals.length > operands.length && !isOpen)
    throw new UsageError(`one argument too many: "${positionals.at(-1)}"`)
  const optional = (name: keyof F & string): Given | undefined => {
    const given = values[name]
    if (given !== undefined) return { text: String(given), from: `--${name}` }
    const variable = variableOf(name, flags[name])
    const inEnv = variable === false ? undefined : env[variable]
    if (inEnv?.includes('\ufffd')) throw new UsageError(`${variable} is not UTF-8`) // Node decodes bytes that are not UTF-8 so.
    if (variable !== false && inEnv !== undefined) return { text: inEnv, from: variable }
    const standard = flags[name]?.default
    return standard === undefined ? undefined : { text: standard, from: `--${name}` }
  }
  return {
    positionals,
    optional,
    required(name) {
      const given = optional(name)
      if (given === undefined) throw new UsageError(`--${name} is missing`)
      return given
    },
    isSet(name) {
      const given = optional(name)
      return given !== undefined && ['true', '1'].includes(oneOf(given, ['true', '1', 'false', '0']))
    },
  }
}

export function flagsHelp(flags: Flags, width = 31): string {
  const rows = Object.entries(flags).map(([name, flag]) => {
    const { value, help, default: standard } = flag
    const shown = value === 'BYTES' ? sizeText(Number(standard)) : standard
    const facts = [standard && `default ${shown}`, variableOf(name, flag)].filter(Boolean).join('; ')
    const usage = `--${name}${value === undefined ? '' : ` ${value}`}`
    return `  ${usage.padEnd(width)} ${help}${facts && ` (${facts})`}\n`
  })
  return rows.join('')
}

function parse(flags: Flags, args: readonly string[], allowPositionals: boolean) {
  const options = Object.fromEntries(
    Object.entries(flags).map(([name, { value }]) => [
      name,
      { type: value === undefined ? 'boolean' : 'string' } as const,
    ]),
  )
  try {
    return parseArgs({ args: [...args], options, allowPositionals })
  } catch (error) {
    requireKnown(options, args)
    throw new UsageError((error instanceof Error ? error.message : String(error)).split('\n', 1)[0])
  }
}

/** @throws UsageError for the first unknown flag. */
function requireKnown(options: NonNullable<ParseArgsConfig['options']>, args: readonly string[]): void {
  const names = Object.keys(options)
  const { tokens } = parseArgs({ args: [...args], options, strict: false, tokens: true })
  for (const token of tokens) {
    if (token.kind !== 'option' || names.includes(token.name)) continue
    const nearest = nearestName(token.name, names)
    const meant = nearest === undefined ? '' : `: did you mean --${nearest}?`
    throw new UsageError(`Unknown option '${nameInError(token.rawName)}'${meant}`)
  }
}

export function variablesOf(flags: Flags): string[] {
  return Object.entries(flags).flatMap(([name, flag]) => variableOf(name, flag) || [])
}

function variableOf(name: string, flag: Flag | undefined): string | false {
  return flag?.variable ?? `PERKV_${name.toUpperCase().replaceAll('-', '_')}`
}

export function notEmpty({ text, from }: Given): string {
  if (text !== '') return text
  throw new UsageError(`${from} is empty`)
}

export function integer({ text, from }: Given, min: number, max: number): number {
  const value = /^\d{1,16}$/.test(text) ? Number(text) : Number.NaN
  if (value >= min && value <= max) return value
  throw new UsageError(`${from} must be an integer from ${min} to ${max}, not "${text}"`)
}

const SIZES: Readonly<Record<string, number>> = {
  b: 1,
  ...{ kb: 1e3, mb: 1e6, gb: 1e9, tb: 1e12 },
  ...{ kib: 2 ** 10, mib: 2 ** 20, gib: 2 ** 30, tib: 2 ** 40 },
}

/** Reads bytes, such as `65536`, `64KiB`, `256MB` or `1GiB`. */
export function sizeBytes({ text, from }: Given, min: number, max: number): number {
  const [, count, unit] = /^(\d{1,16}) ?([kmgt]?i?b)?$/i.exec(text) ?? []
  const bytes = Number(count) * (SIZES[unit?.toLowerCase() ?? 'b'] ?? Number.NaN)
  if (bytes >= min && bytes <= max) return bytes
  throw new UsageError(
    `${from} must be a size such as 65536, 64MiB or 1GiB, from ${sizeText(min)} to ${sizeText(max)}, not "${text}"`,
  )
}

/** `64MiB` where that is the whole size, else the bytes. */
function sizeText(bytes: number): string {
  const unit = ['TiB', 'GiB', 'MiB', 'KiB'].find((unit) => bytes > 0 && bytes % (SIZES[unit.toLowerCase()] ?? 1) === 0)
  return unit === undefined ? String(bytes) : `${bytes / (SIZES[unit.toLowerCase()] ?? 1)}${unit}`
}

/** Reads milliseconds, or a time with a unit. */
export function milliseconds(given: Given, min: number, max: number): number {
  return /^\d+$/.test(given.text) ? integer(given, min, max) : durationMs(given, min, max)
}

const UNITS: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 }

/** Reads `500ms`, `90s`, `10m`, `12h`, `7d` or `0`. */
export function durationMs({ text, from }: Given, min: number, max: number): number {
  const [, count, unit] = /^(\d{1,12})(ms|s|m|h|d)$/.exec(text === '0' ? '0ms' : text) ?? []
  const ms = Number(count) * (UNITS[unit ?? ''] ?? Number.NaN)
  if (ms >= min && ms <= max) return ms
  throw new UsageError(
    `${from} must be a time such as 500ms, 90s, 10m, 12h or 7d, from ${min}ms to ${max}ms, not "${text}"`,
  )
}

/** @param said replaces the names in the message, where they are not all. */
export function oneOf<const T extends string>(
  { text, from }: Given,
  names: readonly T[],
  said = `one of ${names.join(', ')}`,
): T {
  const name = names.find((one) => one === text)
  if (name !== undefined) return name
  throw new UsageError(`${from} must be ${said}, not "${nameInError(text)}"${didYouMean(text, names)}`)
}
