import { invalid } from './kv-error.js'

export function integerOf(field: string, value: number, min: number, max: number): number {
  if (Number.isSafeInteger(value) && value >= min && value <= max) return value
  throw invalid(field, `${field} must be an integer from ${min} to ${max}`)
}
