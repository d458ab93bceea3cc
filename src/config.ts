import { parseArgs } from 'node:util'
import { CACHE_BYTES_DEFAULT, DEFAULT_LIMITS, type Limits } from './limits.js'

export interface Config {
  readonly host: string
  /** 0: any that is free. */
  readonly port: number
  readonly data: string
  readonly durability: 'sync' | 'async'
  readonly store: 'leveldb'
  readonly logLevel: (typeof LOG_LEVELS)[number]
  readonly limits: Limits
  readonly cacheBytesMax: number
}

/** A flag or variable that can't be used. The message is one line for people. */
export class UsageError extends Error {
  override readonly name = 'UsageError'
}

const LOG_LEVELS = ['silent', 'fatal', 'error', 'warn', 'info', 'debug', 'trace'] as const

interface Flag {
  readonly value: string
  readonly help: string
  readonly default: string
}

/** Every flag of `serve`; `--key-bytes-max` is `PERKV_KEY_BYTES_MAX` in the environment. */
const FLAGS = {
  host: { value: 'ADDRESS', help: 'address to listen on', default: '127.0.0.1' },
  port: { value: 'PORT', help: 'port to listen on; 0 takes any that is free', default: '7400' },
  data: { value: 'DIR', help: 'directory of the database, made if it is missing', default: './data' },
  durability: {
    value: 'sync|async',
    help: 'sync: fsync before every answer; async: when the system likes',
    default: 'sync',
  },
  store: { value: 'leveldb', help: 'where rows live', default: 'leveldb' },
  'log-level': { value: 'LEVEL', help: LOG_LEVELS.join(', '), default: 'warn' },
  'key-bytes-max': { value: 'BYTES', help: 'longest key', default: String(DEFAULT_LIMITS.keyBytesMax) },
  'value-bytes-max': { value: 'BYTES', help: 'longest value', default: String(DEFAULT_LIMITS.valueBytesMax) },
  'body-bytes-max': { value: 'BYTES', help: 'longest request body', default: String(DEFAULT_LIMITS.bodyBytesMax) },
  'cache-bytes-max': { value: 'BYTES', help: 'cache of newest versions', default: String(CACHE_BYTES_DEFAULT) },
} as const satisfies Record<string, Flag>

type FlagName = keyof typeof FLAGS
const NAMES = Object.keys(FLAGS) as FlagName[]

/**
 * The configuration of `perkv serve`: flags first, then `PERKV_*`, then defaults.
 * @throws UsageError
 */
export function readConfig(args: readonly string[], env: NodeJS.ProcessEnv): Config {
  const given = parseFlags(args)
  const read = (name: FlagName): { text: string; from: string } => {
    const flag = given[name]
    if (flag !== undefined) return { text: flag, from: `--${name}` }
    const variable = variableOf(name)
    const inEnv = env[variable]
    return inEnv === undefined ? { text: FLAGS[name].default, from: `--${name}` } : { text: inEnv, from: variable }
  }
  return {
    host: notEmpty(read('host')),
    port: integer(read('port'), 0, 65_535),
    data: notEmpty(read('data')),
    durability: oneOf(read('durability'), ['sync', 'async']),
    store: oneOf(read('store'), ['leveldb']),
    logLevel: oneOf(read('log-level'), LOG_LEVELS),
    limits: {
      keyBytesMax: integer(read('key-bytes-max'), 1, 8192),
      valueBytesMax: integer(read('value-bytes-max'), 1, 256 * 1024 * 1024),
      bodyBytesMax: integer(read('body-bytes-max'), 1024, 512 * 1024 * 1024),
    },
    cacheBytesMax: integer(read('cache-bytes-max'), 0, 2 ** 40),
  }
}

export function usage(): string {
  const rows = NAMES.map((name) => {
    const { value, help, default: standard } = FLAGS[name]
    return `  ${`--${name} ${value}`.padEnd(27)} ${help} (default ${standard}; ${variableOf(name)})`
  })
  return `Usage: perkv serve [flags]
       perkv --help | --version

A transactional key-value server: Percolator's protocol on LevelDB, behind HTTP.

Flags, each also an environment variable; a flag wins:
${rows.join('\n')}
`
}

function variableOf(name: FlagName): string {
  return `PERKV_${name.toUpperCase().replaceAll('-', '_')}`
}

function parseFlags(args: readonly string[]): Partial<Record<FlagName, string>> {
  const options = Object.fromEntries(NAMES.map((name) => [name, { type: 'string' as const }]))
  try {
    return parseArgs({ args: [...args], options, allowPositionals: false }).values as Partial<Record<FlagName, string>>
  } catch (error) {
    throw new UsageError((error instanceof Error ? error.message : String(error)).split('\n', 1)[0])
  }
}

interface Given {
  readonly text: string
  readonly from: string
}

function notEmpty({ text, from }: Given): string {
  if (text !== '') return text
  throw new UsageError(`${from} is empty`)
}

function integer({ text, from }: Given, min: number, max: number): number {
  const value = /^\d{1,15}$/.test(text) ? Number(text) : Number.NaN
  if (value >= min && value <= max) return value
  throw new UsageError(`${from} must be an integer from ${min} to ${max}, not "${text}"`)
}

function oneOf<const T extends string>({ text, from }: Given, names: readonly T[]): T {
  const name = names.find((one) => one === text)
  if (name !== undefined) return name
  throw new UsageError(`${from} must be one of ${names.join(', ')}, not "${text}"`)
}
