// Keys, values and chance: the same in every run.
import { createHash } from 'node:crypto'

export const SEED = 1
export const VALUE_BYTES = 100

const pool = Array.from({ length: 4096 }, (_, i) =>
  createHash('sha512').update(`${SEED}/${i}`).digest('base64url'),
).join('')

/** mulberry32. @returns an integer from 0 to below `n`. */
export const random = (() => {
  let state = SEED
  return (n) => {
    state = (state + 0x6d2b79f5) | 0
    let t = Math.imul(state ^ (state >>> 15), 1 | state)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    return Math.floor((((t ^ (t >>> 14)) >>> 0) / 2 ** 32) * n)
  }
})()

/** Text that LevelDB's compression finds nothing in. */
export function value(bytes = VALUE_BYTES) {
  const from = random(pool.length - bytes)
  return pool.slice(from, from + bytes)
}

export const key = (i) => `key${String(i).padStart(9, '0')}`

let fresh = 0
/** A key that was not used before in this process. */
export const freshKey = () => `new${String(fresh++).padStart(9, '0')}`
