/**
 * Checks that an answer has the fields that the client uses, with their types. A server that is not PerKV answers 200 too, and
 * its answer must not fail deep inside the client. Unknown fields, of newer servers, are ignored.
 */
export type Shape = (value: unknown) => boolean

export const INTEGER: Shape = Number.isSafeInteger
export const TEXT: Shape = (value) => typeof value === 'string'
export const BOOLEAN: Shape = (value) => typeof value === 'boolean'
export const BYTES: Shape = (value) => value instanceof Uint8Array

export function listOf(item: Shape): Shape {
  return (value) => Array.isArray(value) && value.every((each) => item(each))
}

export function optional(shape: Shape): Shape {
  return (value) => value === undefined || shape(value)
}

export function orNull(shape: Shape): Shape {
  return (value) => value === null || shape(value)
}

export function record(fields: Readonly<Record<string, Shape>>): Shape {
  const all = Object.entries(fields)
  return (value) =>
    typeof value === 'object' && value !== null && all.every(([name, shape]) => shape((value as never)[name]))
}

export const ANYTHING = record({})
