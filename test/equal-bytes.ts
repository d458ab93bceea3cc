import { expect } from 'vitest'

/** vitest compares buffers byte by byte: half a second for 100 KB. */
const isEqual = (one: unknown, other: unknown): boolean | undefined =>
  Buffer.isBuffer(one) && Buffer.isBuffer(other) ? one.equals(other) : undefined

const isThere = Symbol.for('perkv.equal-bytes')
// Files that share a process come here one after the other.
if (!(isThere in globalThis)) {
  Object.assign(globalThis, { [isThere]: true })
  expect.addEqualityTesters([isEqual])
}
