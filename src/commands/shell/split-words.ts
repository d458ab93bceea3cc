/** A word of a line, and where it begins. */
interface Word {
  readonly text: string
  readonly at: number
}

export interface Line {
  readonly words: readonly Word[]
  readonly isOpen: boolean
  readonly openQuote: string | undefined
}

/** Splits a line as a shell does: at blanks, except in quotes of either kind and after a backslash. */
export function splitWords(line: string): Line {
  const words: Word[] = []
  let word: { text: string; at: number } | undefined
  let quote: string | undefined
  for (let i = 0; i < line.length; i++) {
    const character = line[i] as string
    if (quote === undefined && /\s/.test(character)) {
      if (word !== undefined) words.push(word)
      word = undefined
      continue
    }
    word ??= { text: '', at: i }
    if (character === quote) quote = undefined
    else if (quote === undefined && (character === '"' || character === "'")) quote = character
    else if (character === '\\' && quote !== "'" && i + 1 < line.length) word.text += line[++i]
    else word.text += character
  }
  if (word !== undefined) words.push(word)
  return { words, isOpen: word !== undefined, openQuote: quote }
}

export function quoted(text: string): string {
  return text === '' ? "''" : text.replace(/[\s\\'"]/g, '\\$&')
}
