import { shown, wireOf } from './wire-bytes.js'

/** The range of an observer or a consumer. */
export function rangeText(range: {
  readonly prefix?: Uint8Array | undefined
  readonly start?: Uint8Array | undefined
  readonly end?: Uint8Array | undefined
}): string {
  const { prefix, start, end } = range
  const isWhole = (prefix?.length ?? 0) === 0 && start === undefined && end === undefined
  if (isWhole) return 'every key'
  if (prefix !== undefined) return `${shown(wireOf(prefix))}*`
  return `[${start === undefined ? '' : shown(wireOf(start))}, ${end === undefined ? '' : shown(wireOf(end))})`
}
