import { isUtf8 } from 'node:buffer'
import { PassThrough } from 'node:stream'
import { cutText } from '../../bytes/cut-text.js'
import { asBuffer } from '../../bytes/key-text.js'
import type { Connection } from '../../client/index.js'
import { didYouMean, nameInError } from '../../errors/nearest-name.js'
import { type Given, UsageError } from '../../server/flags.js'
import { Screen } from '../client/screen.js'
import { wireJson } from '../client/wire-json.js'
import type { Tool } from './tools.js'

/** As long as the longest key. */
const SHOWN_BYTES_MAX = 4096
/** More would fill the context of a model. */
const ANSWER_BYTES_MAX = 128 * 1024

/** As `tools/list` has it. */
export function listed(name: string, tool: Tool): object {
  const { command, about = command.about, operands = {}, writes } = tool
  const inputSchema = { type: 'object', properties: argumentsOf(tool), required: Object.keys(operands) }
  const hints = writes ? { destructiveHint: true, idempotentHint: writes === 'once' } : {}
  const annotations = { readOnlyHint: writes === undefined, openWorldHint: false, ...hints }
  return { name, description: about, inputSchema: { ...inputSchema, additionalProperties: false }, annotations }
}

interface Argument {
  readonly type: string
  readonly description: string
}

/** Schemas of the operands and flags. */
function argumentsOf({
  command,
  operands = {},
  defaults = {},
  without = [],
}: Tool): Readonly<Record<string, Argument>> {
  const flags = Object.entries(command.flags).filter(([name]) => name !== 'raw' && !without.includes(name))
  const schemas = flags.map(([name, { value, help }]) => {
    const type = value === undefined ? 'boolean' : ['N', 'TS'].includes(value) ? 'integer' : 'string'
    const standard = defaults[name] === undefined ? '' : ` (default ${defaults[name]})`
    return [name, { type, description: help + standard }] as const
  })
  return { ...operands, ...Object.fromEntries(schemas) }
}

/**
 * @param given arguments, from outside.
 * @returns lines of JSON, with the beginnings of long values.
 * @throws UsageError, and errors of the command.
 */
export async function callTool(db: Connection, tool: Tool, given: unknown): Promise<string> {
  const { command, operands = {}, defaults = {} } = tool
  const args = checked(argumentsOf(tool), given)
  const texts = Object.keys(operands).map((name) => {
    const value = args.get(name)
    if (value === undefined) throw new UsageError(`the argument "${name}" is missing`)
    return typeof value === 'string' ? { operand: value, stdin: value } : { operand: '-', stdin: JSON.stringify(value) }
  })
  const optional = (name: string): Given | undefined => {
    const value = args.get(name) ?? defaults[name]
    return value === undefined ? undefined : { text: String(value), from: name }
  }
  const required = (name: string): Given => optional(name) ?? { text: '', from: name }
  const isSet = (name: string): boolean => args.get(name) === true
  const flags = { positionals: texts.map(({ operand }) => operand), optional, required, isSet }
  const screen = new Answer()
  // Where the operand is `-` the command reads stdin. A value `-` is there too.
  const stdin = new PassThrough().end(texts.at(-1)?.stdin ?? '')
  const { signal } = new AbortController()
  const outcome = await command.run({ db, flags, screen, stdin, signal, note: () => {} }).catch((error) => {
    if (!(error instanceof AnswerFull)) throw error
  })
  return outcome === 'absent' ? '{"found":false}' : screen.text
}

/** @throws UsageError */
function checked(schemas: Readonly<Record<string, Argument>>, given: unknown): ReadonlyMap<string, unknown> {
  const args = Object.entries(typeof given === 'object' && given !== null ? given : {})
  for (const [name, value] of args) {
    const schema = Object.hasOwn(schemas, name) ? schemas[name] : undefined
    if (schema === undefined)
      throw new UsageError(`there is no argument "${nameInError(name)}"${didYouMean(name, Object.keys(schemas))}`)
    if (value === null || (Number.isSafeInteger(value) ? 'integer' : typeof value) !== schema.type)
      throw new UsageError(`the argument "${name}" must have the type ${schema.type}`)
  }
  return new Map(args)
}

/** Ends a command that would print more. */
class AnswerFull extends Error {}

/** Collects the lines that a command prints. */
class Answer extends Screen {
  text = ''

  constructor() {
    super(new PassThrough(), 'lines')
  }

  override async line(value: object): Promise<void> {
    this.text += `${this.text && '\n'}${wireJson(cutBytes(value))}`
    if (this.text.length <= ANSWER_BYTES_MAX) return
    this.text = `${cutText(this.text, ANSWER_BYTES_MAX)}… (the rest is left out: ask for less)`
    throw new AnswerFull()
  }
}

/** Replaces long byte strings, wherever they are, by their beginning and length. */
function cutBytes(value: unknown): unknown {
  if (value instanceof Uint8Array) return value.length > SHOWN_BYTES_MAX ? beginningOf(asBuffer(value)) : value
  if (Array.isArray(value)) return value.map(cutBytes)
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(Object.entries(value).map(([name, field]) => [name, cutBytes(field)]))
}

function beginningOf(value: Buffer): object {
  const bytes = value.length
  if (!isUtf8(value)) return { base64: value.toString('base64', 0, SHOWN_BYTES_MAX), bytes }
  return { text: cutText(value.toString('utf8', 0, SHOWN_BYTES_MAX + 3), SHOWN_BYTES_MAX), bytes }
}
