/** Controls, ends of lines, and marks that turn the direction of what follows: a terminal or a pager would obey them. */
const OBEYED = /[\p{Cc}\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]/gu

/** Replaces such characters by `\\uXXXX`, which within a text of JSON means the same. */
export function printable(text: string): string {
  return text.replace(OBEYED, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, '0')}`)
}
