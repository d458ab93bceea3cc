// Operations of one request, for both generators: a request with holes, each filled with text of one length.
//
//   <new1>, <new2>  keys that were never sent before: 16 digits, which are base64, too
//   <old>           one of the keys 0 to below `keys` of the operation, uniformly
//   <value>         100 bytes of text
//   <value64>       100 bytes in base64
import { keyOf, random, text, VALUE_BYTES, valueAt } from '../../harness/payload.mjs'
import { bytesOf } from '../../harness/requests.mjs'

const HOLE = /<(\w+)>/
const BASE64_BYTES = 4 * Math.ceil(VALUE_BYTES / 3)

/** Digits of a new key: of who makes it, and of a counter. Runs of wrk have the makers below this one. */
const [MAKER_DIGITS, COUNTER_DIGITS] = [4, 12]
const MAKER = 9999
let made = 0

/** @returns a function that makes the next request. */
export function requestsOf({ template: { method, path, headers, body }, keys }) {
  const everywhere = new RegExp(HOLE, 'g')
  return () => {
    const names = {}
    const fill = (text) =>
      text?.replace(everywhere, (_all, hole) => {
        if (hole in fillings) return fillings[hole](keys)
        names[hole] ??= `${MAKER}${String(made++).padStart(COUNTER_DIGITS, '0')}`
        return names[hole]
      })
    return { method, path: fill(path), headers: { ...headers }, body: fill(body) } // autocannon adds to the headers.
  }
}

const fillings = {
  old: (keys) => keyOf(random(keys)),
  value: () => valueAt(made),
  value64: () => `${(valueAt(made) + valueAt(made + 1)).slice(0, BASE64_BYTES - 2)}==`,
}

/** @param maker a number that no other run of wrk has. @returns a script for one thread of wrk, whose counter makes keys that
 * no other connection sends. */
export function luaOf({ template, keys }, maker) {
  const { body } = requestsOf({ template, keys })()
  // Every second part is the name of a hole. wrk.format would cost several times as much as this concatenation.
  const parts = bytesOf({ ...template, length: Buffer.byteLength(body ?? '') }).split(HOLE)
  const names = new Set(parts.filter((part, i) => i % 2 === 1 && !(part in luaFillings)))
  const expressions = parts.map((part, i) => (i % 2 === 0 ? JSON.stringify(part) : (luaFillings[part]?.(keys) ?? part)))
  return `
math.randomseed(os.time() + ${maker})
local texts, at, made = "${text.slice(0, LUA_TEXT_BYTES)}", 0, 0

local function slice(length)
  at = (at + length) % (#texts - length)
  return texts:sub(at + 1, at + length)
end

local function new()
  made = made + 1
  return string.format("%0${MAKER_DIGITS}d%0${COUNTER_DIGITS}d", ${maker}, made)
end

function request()
  ${[...names].map((name) => `local ${name} = new()`).join('\n  ')}
  return ${expressions.join(' .. ')}
end
`
}

/** Enough that a block of LevelDB has no value twice. */
const LUA_TEXT_BYTES = 1 << 16

const luaFillings = {
  old: (keys) =>
    `string.format("${keyOf(0).replace(/\d+/, (digits) => `%0${digits.length}d`)}", math.random(0, ${keys - 1}))`,
  value: () => `slice(${VALUE_BYTES})`,
  value64: () => `slice(${BASE64_BYTES - 2}) .. "=="`,
}
