import { durationMs, type ExpiryOptions } from '../../client/expiry.js'
import { requireIdempotencyKey } from '../../client/idempotency-key.js'
import { requireLeaseName, requireName } from '../../client/name.js'
import { unixMsOfInstant } from '../../instant.js'
import { CLOCK_MS_MAX } from '../../limits.js'
import { type FlagReader, type Flags, type Given, integer, notEmpty, UsageError } from '../../server/flags.js'
import { bytesOfBase64 } from './wire-json.js'

export const BASE64_FLAG = {
  base64: { help: 'keys and values in the arguments are base64', variable: false },
} as const satisfies Flags

export const RAW_FLAG = {
  raw: { help: 'bytes as they are', variable: false },
} as const satisfies Flags

export const RANGE_FLAGS = {
  prefix: { value: 'KEY', help: 'keys that begin with it', variable: false },
  start: { value: 'KEY', help: 'first key', variable: false },
  end: { value: 'KEY', help: 'end of the range, which is not in it', variable: false },
} as const satisfies Flags

export const AT_FLAGS = {
  ts: { value: 'TS', help: 'as of this timestamp', variable: false },
  at: { value: 'TIME', help: 'as of this time, such as 2026-11-23T04:00:00Z', variable: false },
} as const satisfies Flags

export const EXPIRY_FLAGS = {
  ttl: { value: 'TIME', help: 'how long the version is there, such as 500ms, 30s, 10m, 2h or 7d', variable: false },
  'expire-at': { value: 'TIME', help: 'when it goes, such as 2026-11-23T04:00:00Z', variable: false },
} as const satisfies Flags

type Reader<Name extends string> = Pick<FlagReader<Name>, 'optional' | 'isSet' | 'positionals'>

export function argumentBytes(given: Given, flags: Pick<FlagReader<'base64'>, 'isSet'>): Uint8Array {
  const { text, from } = given
  if (!flags.isSet('base64')) return Buffer.from(text) // cli.ts and the shell refuse arguments that are not UTF-8.
  const bytes = bytesOfBase64(text)
  if (bytes === undefined) throw new UsageError(`${from} is not base64, with padding`)
  return bytes
}

/** The operand KEY. @throws UsageError */
export function keyArgument(flags: Reader<'base64'>): Uint8Array {
  return argumentBytes({ text: notEmpty({ text: flags.positionals[0] ?? '', from: 'KEY' }), from: 'KEY' }, flags)
}

export function rangeOf(flags: Reader<'prefix' | 'start' | 'end' | 'base64'>) {
  const bound = (name: 'prefix' | 'start' | 'end'): Uint8Array | undefined => {
    const given = flags.optional(name)
    return given && argumentBytes(given, flags)
  }
  const [prefix, start, end] = [bound('prefix'), bound('start'), bound('end')]
  if (prefix === undefined) return { start, end }
  if (start !== undefined || end !== undefined) throw new UsageError('--prefix does not go with --start and --end')
  return { prefix }
}

export const ONCE_FLAG = {
  'idempotency-key': {
    value: 'TEXT',
    help: 'with the same text again nothing more is written, for ten minutes',
    variable: false,
  },
} as const satisfies Flags

export function idempotencyKeyOf(flags: Reader<'idempotency-key'>): string | undefined {
  return checked(flags.optional('idempotency-key')?.text, requireIdempotencyKey)
}

/** The flag that is set, of those that do not go with each other. @throws UsageError */
export function onlyOne<const Name extends string>(
  flags: Pick<FlagReader<NoInfer<Name>>, 'isSet'>,
  names: readonly Name[],
): Name | undefined {
  const [first, second] = names.filter((name) => flags.isSet(name))
  if (second !== undefined) throw new UsageError(`--${first} does not go with --${second}`)
  return first
}

export function nameArgument(of: 'observer' | 'consumer', name: string | undefined): string | undefined {
  return checked(name, (name) => requireName(of, name))
}

export function leaseNameOf(name: string | undefined): string | undefined {
  return checked(name, requireLeaseName)
}

/** Checks the text as the client does. */
function checked(text: string | undefined, require: (text: string) => unknown): string | undefined {
  try {
    if (text !== undefined) require(text)
    return text
  } catch (error) {
    throw error instanceof TypeError ? new UsageError(error.message) : error
  }
}

export function positiveOf(given: Given | undefined): number | undefined {
  return given && integer(given, 1, Number.MAX_SAFE_INTEGER)
}

/** The hour and minute of an instant that leaves the seconds out. */
const WITHOUT_SECONDS = /([Tt ]\d\d:\d\d)(?=[Zz+-])/

export function readAtOf(flags: Reader<'ts' | 'at'>) {
  const ts = positiveOf(flags.optional('ts'))
  const given = flags.optional('at')
  if (given === undefined) return { ts }
  if (ts !== undefined) throw new UsageError('--ts does not go with --at')
  return { at: instantOf(given) }
}

/** @throws UsageError also for an instant that has no timestamp. */
export function instantOf({ text, from }: Given): Date {
  const unixMs = unixMsOfInstant(text.replace(WITHOUT_SECONDS, '$1:00'))
  if (unixMs !== undefined && unixMs > 0 && unixMs <= CLOCK_MS_MAX) return new Date(unixMs)
  throw new UsageError(`${from} must be a time such as 2026-11-23T04:00:00Z, not "${text}"`)
}

export function expiryOf(flags: Reader<'ttl' | 'expire-at'>): ExpiryOptions | undefined {
  const ttl = flags.optional('ttl')
  const expireAt = flags.optional('expire-at')
  if (ttl !== undefined && expireAt !== undefined) throw new UsageError('--ttl does not go with --expire-at')
  if (expireAt !== undefined) return { expireAt: instantOf(expireAt) }
  if (ttl === undefined) return undefined
  const ttlMs = durationMs(ttl.text)
  if (ttlMs === undefined) throw new UsageError(`${ttl.from} must be a time such as 30s, 10m or 7d, not "${ttl.text}"`)
  return { ttl: ttlMs }
}

/** Reads all of stdin. @throws RangeError beyond `bytesMax`. */
export async function allOf(stdin: AsyncIterable<Uint8Array>, bytesMax: number): Promise<Buffer> {
  const chunks: Uint8Array[] = []
  let length = 0
  for await (const chunk of stdin) {
    chunks.push(chunk)
    length += chunk.length
    if (length > bytesMax) throw new RangeError(`stdin has over ${bytesMax} bytes`)
  }
  return Buffer.concat(chunks)
}
