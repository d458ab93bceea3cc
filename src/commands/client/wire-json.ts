import { bytesAsJson } from '../../bytes/bytes-as-json.js'
import { camelCase, snakeCase } from '../../bytes/field-names.js'
import { BODY_DEPTH_MAX } from '../../limits.js'

/** JSON as the HTTP API writes it: snake_case names, and bytes as text or, where they are not UTF-8, as base64. */
export function wireJson(value: unknown): string {
  return JSON.stringify(toWire(value))
}

export function wireJsonLines(value: unknown): string {
  return JSON.stringify(toWire(value), null, 2)
}

/**
 * Inverse of `wireJson`: turns JSON of the API into a message for the client.
 * @throws SyntaxError
 */
export function fromWireJson(text: string): unknown {
  return fromWire(JSON.parse(text), 0)
}

function toWire(value: unknown): unknown {
  if (value instanceof Uint8Array) return bytesAsJson(value)
  if (Array.isArray(value)) return value.map(toWire)
  if (typeof value !== 'object' || value === null || value instanceof Date) return value
  return Object.fromEntries(Object.entries(value).map(([name, field]) => [snakeCase(name), toWire(field)]))
}

/** @param depth bounded as the server bounds it, because each level is a call. */
function fromWire(value: unknown, depth: number): unknown {
  if (depth > BODY_DEPTH_MAX) throw new SyntaxError(`it has more than ${BODY_DEPTH_MAX} levels`)
  if (Array.isArray(value)) return value.map((item) => fromWire(item, depth + 1))
  if (typeof value !== 'object' || value === null) return value
  const { base64, ...others } = value as Record<string, unknown>
  if (typeof base64 === 'string' && Object.keys(others).length === 0) return bytesOfBase64(base64) ?? value
  return Object.fromEntries(Object.entries(value).map(([name, field]) => [camelCase(name), fromWire(field, depth + 1)]))
}

/** @returns undefined for text that is not padded base64 of the standard alphabet. */
export function bytesOfBase64(text: string): Buffer | undefined {
  const bytes = Buffer.from(text, 'base64')
  return bytes.toString('base64') === text ? bytes : undefined
}
