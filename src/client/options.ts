export interface Kind<T> {
  readonly accepts: (value: unknown) => value is T
  /** Completes the sentence "... must be". */
  readonly expected: string
  /** The option is a condition of a write. An undefined value is a mistake, and does not mean "no condition". */
  readonly isCondition?: boolean
}

declare const absent: unique symbol

/**
 * The type of a property that must be left out. With `never` instead, and without `exactOptionalPropertyTypes`, the
 * compiler would accept `number | undefined` for a union that has the property as a number in one member only.
 */
export type Absent = { readonly [absent]: never }

type Names<T> = T extends unknown ? keyof T : never
type ValueOf<T, Name extends PropertyKey> = T extends unknown ? (Name extends keyof T ? T[Name] : never) : never

/** A kind for every option of `T`. An option without a kind, or with a kind of another type, does not compile. */
export type Kinds<T> = { readonly [Name in Names<T>]-?: Kind<Exclude<NonNullable<ValueOf<T, Name>>, Absent>> }

/**
 * Makes the check that a function runs on its options before anything else. JavaScript has no compiler that finds a
 * misspelt name, and ignoring a condition or an isolation level would lose data.
 * @param call the name of the function, for messages. These never contain values, because a token is one.
 */
export function optionsOf<T extends object>(call: string, kinds: Kinds<T>): <Given extends T>(given: Given) => Given {
  const known = new Map<string, Kind<unknown>>(Object.entries(kinds))
  return (given) => {
    if (typeof given !== 'object' || given === null || Array.isArray(given))
      throw new TypeError(`the options of ${call} must be an object`)
    for (const name in given) {
      // Includes inherited properties, because reading an option finds them too.
      const kind = known.get(name)
      if (kind === undefined)
        throw new TypeError(`${call} has no option "${name}": its options are ${[...known.keys()].join(', ')}`)
      const value: unknown = given[name]
      if (value === undefined ? kind.isCondition : !kind.accepts(value))
        throw new TypeError(`${call}: ${name} must be ${kind.expected}${value === undefined ? ', not undefined' : ''}`)
    }
    return given
  }
}

/**
 * For functions without options whose namesake has options: options must not be ignored silently.
 * @throws TypeError
 */
export function requireNoOptions(call: string, given: readonly unknown[]): void {
  if (given.length > 0) throw new TypeError(`${call} has no options`)
}

export function kind<T>(expected: string, accepts: (value: unknown) => boolean): Kind<T> {
  return { expected, accepts: accepts as Kind<T>['accepts'] }
}

function isWhole(value: unknown): boolean {
  return Number.isSafeInteger(value) && (value as number) >= 0
}

export const BOOLEAN = kind<boolean>('true or false', (value) => typeof value === 'boolean')
export const TEXT = kind<string>('a string', (value) => typeof value === 'string')
export const BYTES = kind<string | Uint8Array>(
  'a string or a Uint8Array',
  (value) => typeof value === 'string' || value instanceof Uint8Array,
)
export const WAIT_MS = kind<number>('a whole number of milliseconds from 0', isWhole)
export const COUNT = kind<number>(
  'a whole number from 0, or Infinity',
  (value) => isWhole(value) || value === Number.POSITIVE_INFINITY,
)
export function wholeUpTo(min: number, max: number): Kind<number> {
  return kind(
    `a whole number from ${min} to ${max}`,
    (value) => isWhole(value) && Number(value) >= min && Number(value) <= max,
  )
}
/** For times that the client itself measures. Unlike `WAIT_MS` it allows fractions and Infinity. */
export const TIME_MS = kind<number>(
  'a number of milliseconds from 0',
  (value) => typeof value === 'number' && value >= 0,
)
export const TIMESTAMP = kind<number>(
  'a timestamp, a positive safe integer',
  (value) => Number.isSafeInteger(value) && (value as number) > 0,
)
export const SINCE_TS = kind<number>('a timestamp, or 0 for the beginning', isWhole)
export const DATE = kind<Date>('a Date', (value) => value instanceof Date)
export const SIGNAL = kind<AbortSignal>(
  'an AbortSignal', // Polyfills are accepted, so `instanceof` would be too strict.
  (value) => typeof value === 'object' && value !== null && 'aborted' in value && 'addEventListener' in value,
)

export function oneOf<const Name extends string>(...names: readonly Name[]): Kind<Name> {
  return kind(names.map((name) => `'${name}'`).join(' or '), (value) => names.some((name) => name === value))
}
