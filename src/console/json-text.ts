/** JSON as it is written. Parsing it and printing it again would change numbers that JavaScript cannot hold. */

export interface Token {
  readonly kind: 'name' | 'text' | 'number' | 'word' | 'sign'
  /** With the white space after it. */
  readonly text: string
}

export interface JsonMistake {
  readonly offset: number
  readonly line: number
  readonly column: number
  readonly expected: string
}

const TEXT = String.raw`"[^"\\\u0000-\u001f]*(?:\\(?:["\\/bfnrt]|u[\da-fA-F]{4})[^"\\\u0000-\u001f]*)*"`
const TOKEN = new RegExp(
  String.raw`[ \t\r\n]*(?:(${TEXT})|(-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?)|(true|false|null)|([{}[\],:]))`,
  'y',
)

interface Read {
  readonly kind: 'text' | 'number' | 'word' | 'sign'
  readonly text: string
  readonly offset: number
}

function* tokensOf(json: string): Generator<Read, void, undefined> {
  TOKEN.lastIndex = 0
  for (;;) {
    const offset = TOKEN.lastIndex
    TOKEN.lastIndex = offset
    const match = TOKEN.exec(json)
    if (match === null) return
    const [all, quoted, number, word, sign = ''] = match
    const text = quoted ?? number ?? word ?? sign
    const kind = quoted !== undefined ? 'text' : number !== undefined ? 'number' : word !== undefined ? 'word' : 'sign'
    const end = offset + all.length
    yield { kind, text, offset: end - text.length }
    TOKEN.lastIndex = end // Another text may have been read meanwhile.
  }
}

const EXPECTED = {
  value: 'a value is expected',
  first: 'a value or ] is expected',
  name: 'a name in double quotes is expected',
  firstName: 'a name in double quotes or } is expected',
  colon: 'a colon is expected',
  inList: 'a comma or ] is expected',
  inObject: 'a comma or } is expected',
  end: 'nothing more is expected',
}

/** The first mistake; undefined: it is JSON. */
export function jsonMistake(json: string): JsonMistake | undefined {
  const open: string[] = []
  let expected: keyof typeof EXPECTED = 'value'
  let offset = 0
  const after = (): keyof typeof EXPECTED => (open.length === 0 ? 'end' : open.at(-1) === '{' ? 'inObject' : 'inList')
  for (const token of tokensOf(json)) {
    const next = nextOf(expected, token, open, after)
    if (next === undefined) return mistakeAt(json, token.offset, EXPECTED[expected])
    expected = next
    offset = token.offset + token.text.length
  }
  const rest = json.slice(offset)
  const space = rest.length - rest.trimStart().length
  const isWhole = expected === 'end' && space === rest.length
  return isWhole ? undefined : mistakeAt(json, offset + space, EXPECTED[expected])
}

/** What is expected after a token; undefined: not this token. */
function nextOf(
  expected: keyof typeof EXPECTED,
  { kind, text }: Read,
  open: string[],
  after: () => keyof typeof EXPECTED,
): keyof typeof EXPECTED | undefined {
  const isName = expected === 'name' || expected === 'firstName'
  const closes =
    (text === ']' && (expected === 'first' || expected === 'inList')) ||
    (text === '}' && (expected === 'firstName' || expected === 'inObject'))
  if (closes && kind === 'sign') {
    open.pop()
    return after()
  }
  if (isName) return kind === 'text' ? 'colon' : undefined
  if (expected === 'colon') return text === ':' && kind === 'sign' ? 'value' : undefined
  if (expected === 'inList' || expected === 'inObject')
    return text === ',' && kind === 'sign' ? (expected === 'inList' ? 'value' : 'name') : undefined
  if (expected === 'end') return undefined
  if (kind !== 'sign') return after()
  if (text !== '{' && text !== '[') return undefined
  open.push(text)
  return text === '{' ? 'firstName' : 'first'
}

function mistakeAt(json: string, offset: number, expected: string): JsonMistake {
  const lines = json.slice(0, offset).split('\n')
  return { offset, line: lines.length, column: (lines.at(-1) ?? '').length + 1, expected }
}

/** Valid JSON, indented by two spaces. */
export function indentedJson(json: string): Token[] {
  const tokens = [...tokensOf(json)]
  let depth = 0
  return tokens.map(({ kind, text }, i) => {
    const next = tokens[i + 1]?.text
    const isNext = (signs: string): boolean => next !== undefined && signs.includes(next)
    if (kind !== 'sign') {
      if (kind === 'text' && next === ':') return { kind: 'name', text }
      return { kind, text: isNext(']}') ? text + lineOf(--depth) : text }
    }
    if (text === ':') return { kind, text: ': ' }
    if (text === ',') return { kind, text: text + lineOf(depth) }
    if (text === '{' || text === '[') return { kind, text: isNext(']}') ? text : text + lineOf(++depth) }
    // An empty list or object has not gone deeper. After another closing sign the depth is one less.
    return { kind, text: isNext(']}') ? text + lineOf(--depth) : text }
  })
}

export function textOfTokens(tokens: readonly Token[]): string {
  return tokens.map(({ text }) => text).join('')
}

/** Deeper values are not indented further: white space would grow with the square of the depth. */
const INDENTS_MAX = 64

function lineOf(depth: number): string {
  return `\n${'  '.repeat(Math.min(INDENTS_MAX, Math.max(0, depth)))}`
}
