import { invalid, KvError } from '../../errors/kv-error.js'
import { nameInError } from './problem.js'

/** Values of a body that are read before the clock is looked at. */
const BODY_STEP_VALUES = 8192
/** Bytes of text and byte strings that are read before the clock is looked at. */
const BODY_STEP_BYTES = 256 * 1024

/** Beyond them a body is more than any request needs. */
export interface BodyLimits {
  readonly valuesMax: number
  /** Of one text or byte string. */
  readonly textBytesMax: number
}

/** A list or an object that is being read; `name` is that of the field whose value comes next. */
export interface Container {
  readonly list: unknown[] | undefined
  readonly object: Record<string, unknown> | undefined
  name: string
  /** JSON: fields of the object that were read. MessagePack: entries that are left. */
  count: number
}

export const newList = (count: number): Container => ({ list: [], object: undefined, name: '', count })
export const newObject = (count: number): Container => ({ list: undefined, object: {}, name: '', count })

/** @throws KvError `invalid_argument` for a name that would change what the object is. */
export function put({ list, object, name }: Container, value: unknown): void {
  if (list !== undefined) list.push(value)
  else if (name === '__proto__') throw invalid('body', 'the body holds the name __proto__')
  else if (object !== undefined) object[name] = value
}

/** No request has so many levels, or fields in one object. @throws KvError `invalid_argument` */
export function requireFewer(have: number, limit: number, what: string): void {
  if (have >= limit) throw invalid('body', `the body has more than ${limit} ${what}`)
}

/** Where a value stands in the body, as errors name it: `ops[3].value`. */
export function pathOf(open: readonly Container[]): string {
  let path = ''
  for (const { list, name } of open)
    path += list !== undefined ? `[${list.length}]` : path === '' ? nameInError(name) : `.${nameInError(name)}`
  return path === '' ? 'body' : path
}

/** How much of a body was read. */
export class ValueCount {
  #values = 0
  #nextStop = BODY_STEP_BYTES

  constructor(readonly valuesMax: number) {}

  /** @param at where the next value is. @returns whether it is time to let others run. @throws KvError `payload_too_large` */
  add(at: number): boolean {
    if (this.#values++ >= this.valuesMax) {
      const detail = `the body has more than ${this.valuesMax} values`
      throw new KvError('payload_too_large', detail, { field: 'body', limit: this.valuesMax })
    }
    if (this.#values % BODY_STEP_VALUES !== 0 && at < this.#nextStop) return false
    this.#nextStop = at + BODY_STEP_BYTES
    return true
  }
}
