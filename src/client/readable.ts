import { type As, type Read, readKey } from './bytes.js'

export type Readable<T, A extends As> = T extends Uint8Array
  ? Read<A>
  : T extends readonly (infer Item)[]
    ? readonly Readable<Item, A>[]
    : T extends object
      ? { readonly [Name in keyof T]: Readable<T[Name], A> }
      : T

export function readableOf<T, A extends As>(answer: T, as: A): Readable<T, A> {
  return read(answer, as) as Readable<T, A>
}

function read(value: unknown, as: As): unknown {
  if (value instanceof Uint8Array) return readKey(value, as)
  if (Array.isArray(value)) return value.map((item) => read(item, as))
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(Object.entries(value).map(([name, field]) => [name, read(field, as)]))
}
