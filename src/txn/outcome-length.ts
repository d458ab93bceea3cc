/** Adds up the byte strings of an answer, so that one that is too long is refused before it is encoded. */
export function isLongerThan(bytesMax: number, answer: object): boolean {
  let bytes = 0
  const add = (value: unknown): boolean => {
    if (typeof value !== 'object' || value === null) return false
    if (!(value instanceof Uint8Array)) return Object.values(value).some(add)
    bytes += value.length
    return bytes > bytesMax
  }
  return add(answer)
}
