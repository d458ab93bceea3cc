import { type Flags, integer, notEmpty, oneOf, readFlags } from './flags.js'
import { limitFlags, readLimits } from './limit-flags.js'
import { CACHE_BYTES_DEFAULT, type Limits } from './limits.js'

/** Of `perkv serve`. */
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

const LOG_LEVELS = ['silent', 'fatal', 'error', 'warn', 'info', 'debug', 'trace'] as const

/** Every flag of `serve`. */
export const SERVE_FLAGS = {
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
  'cache-bytes-max': { value: 'BYTES', help: 'cache of newest versions', default: String(CACHE_BYTES_DEFAULT) },
  ...limitFlags,
} as const satisfies Flags

/** @throws UsageError */
export function readConfig(args: readonly string[], env: NodeJS.ProcessEnv): Config {
  const flags = readFlags(SERVE_FLAGS, args, env)
  const { required } = flags
  return {
    host: notEmpty(required('host')),
    port: integer(required('port'), 0, 65_535),
    data: notEmpty(required('data')),
    durability: oneOf(required('durability'), ['sync', 'async']),
    store: oneOf(required('store'), ['leveldb']),
    logLevel: oneOf(required('log-level'), LOG_LEVELS),
    limits: readLimits(flags),
    cacheBytesMax: integer(required('cache-bytes-max'), 0, 2 ** 40),
  }
}
