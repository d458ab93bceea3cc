import { Packr } from 'msgpackr/pack'
import { CorruptRecord } from './key.js'

/** Plain MessagePack arrays without shared structures, so that every record decodes alone. */
const packr = new Packr({ useRecords: false, moreTypes: false, int64AsType: 'number' })

export function packRecord(fields: readonly unknown[]): Buffer {
  return packr.pack(fields)
}

/**
 * @param what names the record in errors. @throws CorruptRecord when the bytes are no MessagePack array of at least `fieldsMin`
 *   fields.
 */
export function unpackRecord(bytes: Uint8Array, what: string, fieldsMin: number): readonly unknown[] {
  let fields: unknown
  try {
    fields = packr.unpack(bytes)
  } catch (cause) {
    throw new CorruptRecord(`a ${what} record does not decode`, undefined, { cause })
  }
  if (!Array.isArray(fields) || fields.length < fieldsMin) throw new CorruptRecord(`a ${what} record is cut short`)
  return fields
}

export function asInteger(field: unknown, what: string): number {
  if (typeof field === 'number' && Number.isSafeInteger(field) && field >= 0) return field
  throw new CorruptRecord(`a ${what} record holds a bad number`)
}

export function asBytes(field: unknown, what: string): Uint8Array {
  if (field instanceof Uint8Array) return field
  throw new CorruptRecord(`a ${what} record holds a bad byte string`)
}

export function asOptionalBytes(field: unknown, what: string): Uint8Array | undefined {
  return field === null || field === undefined ? undefined : asBytes(field, what)
}

export function asText(field: unknown, what: string): string {
  if (typeof field === 'string') return field
  throw new CorruptRecord(`a ${what} record holds a bad text`)
}

export function asList<T>(field: unknown, what: string, each: (item: unknown, what: string) => T): T[] {
  if (!Array.isArray(field)) throw new CorruptRecord(`a ${what} record holds a bad list`)
  return field.map((item) => each(item, what))
}

export function asOneOf<T extends string>(field: unknown, what: string, names: readonly T[]): T {
  const name = typeof field === 'number' ? names[field] : undefined
  if (name === undefined) throw new CorruptRecord(`a ${what} record is of an unknown type`)
  return name
}
