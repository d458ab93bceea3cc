import { invalid, KvError } from '../../errors/kv-error.js'
import { nameInError } from '../../errors/nearest-name.js'

/** Values read between two looks at the clock. */
const BODY_STEP_VALUES = 8192
/** Bytes read between two looks at the clock. */
const BODY_STEP_BYTES = 256 * 1024

export interface BodyLimits {
  readonly valuesMax: number
  /** Longest text or byte string. */
  readonly textBytesMax: number
}

export interface Container {
  readonly list: unknown[] | undefined
  readonly object: Record<string, unknown> | undefined
  /** The field whose value comes next. */
  name: string
  /** JSON: fields read so far. MessagePack: entries left to read. */
  count: number
}

export const newList = (count: number): Container => ({ list: [], object: undefined, name: '', count })
export const newObject = (count: number): Container => ({ list: undefined, object: {}, name: '', count })

/** @throws KvError `invalid_argument` for `__proto__`, which would replace the prototype of the object. */
export function put({ list, object, name }: Container, value: unknown): void {
  if (list !== undefined) list.push(value)
  else if (name === '__proto__') throw invalid('body', 'the body holds the name __proto__')
  else if (object !== undefined) object[name] = value
}

export function requireFewer(have: number, limit: number, what: string): void {
  if (have >= limit) throw invalid('body', `the body has more than ${limit} ${what}`)
}

export function pathOf(open: readonly Container[]): string {
  let path = ''
  for (const { list, name } of open)
    path += list !== undefined ? `[${list.length}]` : path === '' ? nameInError(name) : `.${nameInError(name)}`
  return path === '' ? 'body' : nameInError(path)
}

export class ValueCount {
  #values = 0
  #nextStop = BODY_STEP_BYTES

  constructor(readonly valuesMax: number) {}

  /** @param at byte index of the next value. @returns whether to let other requests run. @throws KvError `payload_too_large` */
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
