const BACKSLASH = 0x5c

const SIMPLE_ESCAPE = /["\\/bfnrt]/
const HEX = /[\da-fA-F]/
/** The longest beginning that is a number, `true`, `false`, `null` or empty. */
const WORD = /^(?:true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?)?/

/**
 * @param text a string in quotes, or a word, that `JSON.parse` refuses. V8 gives the position for some errors only.
 * @returns the index of the first character that is not JSON.
 */
export function jsonErrorAt(text: string): number {
  return text.startsWith('"') ? stringErrorAt(text) : (WORD.exec(text)?.[0].length ?? 0)
}

function stringErrorAt(text: string): number {
  for (let at = 1; at < text.length; at++) {
    const code = text.charCodeAt(at)
    if (code < 0x20) return at
    if (code !== BACKSLASH) continue
    const escaped = text.charAt(++at)
    if (escaped === 'u') {
      const wrong = [1, 2, 3, 4].find((digit) => !HEX.test(text.charAt(at + digit)))
      if (wrong !== undefined) return at + wrong
      at += 4
    } else if (!SIMPLE_ESCAPE.test(escaped)) return at
  }
  return text.length
}
