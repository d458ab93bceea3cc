import { afterPrefix } from '../../bytes/key-range.js'
import type { Db } from '../../client/index.js'
import type { Flags } from '../../server/flags.js'
import { quoted, splitWords } from './split-words.js'

export interface Completable {
  readonly flags: Flags
  readonly operands: readonly string[]
}

const KEYS_MAX = 100
const KEYS_MS_MAX = 1000
const SLASH = 0x2f

export async function complete(
  line: string,
  commands: ReadonlyMap<string, Completable>,
  db: Pick<Db, 'scan'>,
): Promise<[string[], string]> {
  const { words, isOpen, openQuote } = splitWords(line)
  const last = isOpen ? words.at(-1) : undefined
  const typed = last?.text ?? ''
  const raw = last === undefined ? '' : line.slice(last.at)
  const before = (isOpen ? words.slice(0, -1) : words).map(({ text }) => text)
  const matching = (names: Iterable<string>): [string[], string] => [
    [...names].filter((name) => name.startsWith(typed)).map((name) => `${name} `),
    raw,
  ]
  const [name, ...given] = before
  if (name === undefined || (name === 'help' && given.length === 0)) return matching(commands.keys())
  const command = commands.get(name)
  if (command === undefined || openQuote !== undefined) return [[], raw]
  const flag = command.flags[given.at(-1)?.replace(/^--/, '') ?? '']
  if (flag?.value === undefined && typed.startsWith('-') && !given.includes('--'))
    return matching(Object.keys(command.flags).map((flag) => `--${flag}`))
  const wants = flag?.value ?? command.operands[operandsIn(given, command.flags)]
  if (wants !== 'KEY') return [[], raw]
  return [(await keysAt(db, typed)).map(quoted), raw]
}

function operandsIn(words: readonly string[], flags: Flags): number {
  let count = 0
  for (let i = 0; i < words.length; i++) {
    const word = words[i] ?? ''
    if (!word.startsWith('--')) count++
    else if (flags[word.slice(2)]?.value !== undefined) i++
  }
  return count
}

/** Keys that begin with a text, up to the next slash: one level at a time, like files. */
async function keysAt(db: Pick<Db, 'scan'>, text: string): Promise<string[]> {
  const prefix = Buffer.from(text)
  const end = afterPrefix(prefix)
  const deadline = performance.now() + KEYS_MS_MAX
  const found: string[] = []
  /** One level of the first or the last key of the range. */
  const next = async (start: Uint8Array, reverse: boolean): Promise<Uint8Array | undefined> => {
    const signal = AbortSignal.timeout(KEYS_MS_MAX)
    const options = { start, ...(end && { end }), limit: 1, reverse, keysOnly: true, as: 'bytes', signal } as const
    for await (const { key } of db.scan<'bytes', true>(options)) {
      const slash = key.indexOf(SLASH, prefix.length)
      const level = slash === -1 ? key : key.subarray(0, slash + 1)
      const name = Buffer.from(level).toString()
      if (Buffer.from(name).equals(level) && !/\p{Cc}/u.test(name)) found.push(name)
      return slash === -1 ? Buffer.concat([key, Buffer.of(0)]) : afterPrefix(level)
    }
    return undefined
  }
  try {
    let start: Uint8Array | undefined = prefix
    for (let i = 0; start !== undefined && i < KEYS_MAX && performance.now() < deadline; i++)
      start = await next(start, false)
    // Readline inserts the common beginning of all: with the last key it is right although others are left out.
    if (start !== undefined) await next(start, true)
    return [...new Set(found)]
  } catch {
    return [] // Without a server there are no keys to suggest.
  }
}
