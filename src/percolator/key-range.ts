/** The first key after `key`. */
export function afterKey(key: Uint8Array): Uint8Array {
  const after = new Uint8Array(key.length + 1)
  after.set(key)
  return after
}

/** The first key after all that start with `prefix`; undefined when there is none (all bytes 0xFF). */
export function afterPrefix(prefix: Uint8Array): Uint8Array | undefined {
  const last = prefix.findLastIndex((byte) => byte !== 0xff)
  if (last === -1) return undefined
  const end = new Uint8Array(prefix.subarray(0, last + 1)) // A copy; a Buffer's slice is none.
  end[last] = (end[last] as number) + 1
  return end
}
