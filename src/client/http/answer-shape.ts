/**
 * Whether an answer has the fields that the client goes on with, of their types. Any other server answers 200 too, and what it sends
 * must not fail deep inside the client. Further fields, of newer servers, are passed over.
 */
export type Shape = (value: unknown) => boolean

export const INTEGER: Shape = Number.isSafeInteger
export const TEXT: Shape = (value) => typeof value === 'string'
export const BOOLEAN: Shape = (value) => typeof value === 'boolean'
export const BYTES: Shape = (value) => value instanceof Uint8Array

export function listOf(item: Shape): Shape {
  return (value) => Array.isArray(value) && value.every((each) => item(each))
}

/** For fields that may be absent. */
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

/** A body of which nothing is read. */
export const ANYTHING = record({})
