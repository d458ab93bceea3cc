import { type Connection, KvError } from '../../client/index.js'
import { nameInError } from '../../errors/nearest-name.js'
import { version } from '../../version.js'
import { wireJson } from '../client/wire-json.js'
import { callTool, listed } from './call-tool.js'
import { adviceOf } from './explain-error.js'
import type { Tool } from './tools.js'

/** Revisions of MCP, newest first. A client that asks for another one is offered the newest. */
const REVISIONS = ['2025-11-25', '2025-06-18', '2025-03-26', '2024-11-05'] as const

const INSTRUCTIONS = `PerKV is a transactional key-value store with snapshots. Keys are bytes in order, often paths such as city/CH/Bern.
Answers are lines of JSON. A commit_ts or start_ts is Unix time in milliseconds times 2048, plus a counter. Bytes that are not UTF-8 are
shown as {"base64"}; values of over 4096 bytes as {"text" or "base64": the beginning, "bytes": the length of all}.`

/** Codes of JSON-RPC. */
const PARSE_ERROR = -32700
export const INVALID_REQUEST = -32600
const METHOD_NOT_FOUND = -32601
const INVALID_PARAMS = -32602

/** The Model Context Protocol without its transport: messages in, answers out. */
export class McpServer {
  constructor(
    readonly db: Connection,
    readonly tools: Readonly<Record<string, Tool>>,
  ) {}

  /** @returns undefined where no answer is due. */
  async answer(line: Uint8Array): Promise<object | undefined> {
    let message: unknown
    try {
      message = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(line))
    } catch {
      return failed(null, PARSE_ERROR, 'the line is not JSON in UTF-8')
    }
    if (!Array.isArray(message) || message.length === 0) return this.#answerOne(message)
    const answers = await Promise.all(message.map((one) => this.#answerOne(one))) // A batch, as revision 2025-03-26 has them.
    const due = answers.filter((answer) => answer !== undefined)
    return due.length > 0 ? due : undefined
  }

  async #answerOne(message: unknown): Promise<object | undefined> {
    const { jsonrpc, id, method, params, ...others } = fieldsOf(message)
    if (method === undefined && ('result' in others || 'error' in others)) return undefined // An answer, and nothing was asked.
    const isRequest = typeof id === 'string' || typeof id === 'number'
    if (jsonrpc !== '2.0' || typeof method !== 'string' || !(isRequest || id === undefined))
      return failed(isRequest ? id : null, INVALID_REQUEST, 'this is no request of JSON-RPC 2.0')
    if (!isRequest) return undefined // A notification.
    const { protocolVersion: asked, name, arguments: args } = fieldsOf(params)
    switch (method) {
      case 'initialize': {
        const protocolVersion = REVISIONS.find((revision) => revision === asked) ?? REVISIONS[0]
        const serverInfo = { name: 'perkv', version: version() }
        const offered = { protocolVersion, capabilities: { tools: {} }, serverInfo, instructions: INSTRUCTIONS }
        return { jsonrpc, id, result: offered }
      }
      case 'ping':
        return { jsonrpc, id, result: {} }
      case 'tools/list':
        return { jsonrpc, id, result: { tools: Object.entries(this.tools).map(([name, tool]) => listed(name, tool)) } }
      case 'tools/call': {
        const tool = typeof name === 'string' && Object.hasOwn(this.tools, name) ? this.tools[name] : undefined
        if (tool === undefined) return failed(id, INVALID_PARAMS, `there is no tool "${nameInError(String(name))}"`)
        return { jsonrpc, id, result: await this.#resultOf(tool, args) }
      }
      default:
        return failed(id, METHOD_NOT_FOUND, `there is no method "${nameInError(method)}"`)
    }
  }

  /** A failure is a result too: the model sees it, and may do better. */
  async #resultOf(tool: Tool, args: unknown): Promise<object> {
    try {
      return contentOf(await callTool(this.db, tool, args))
    } catch (error) {
      return { ...contentOf(failureText(error)), isError: true }
    }
  }
}

export function failed(id: string | number | null, code: number, message: string): object {
  return { jsonrpc: '2.0', id, error: { code, message } }
}

const contentOf = (text: string): object => ({ content: [{ type: 'text', text }] })

function failureText(error: unknown): string {
  if (!(error instanceof KvError)) return error instanceof Error ? error.message : String(error)
  const { code, fields, message: detail } = error
  return wireJson({ ...adviceOf(code, fieldsOf(fields)['reason']), ...fields, detail })
}

type Fields = Readonly<Record<string, unknown>>

/** No fields, unless it is an object. */
function fieldsOf(value: unknown): Fields {
  return typeof value === 'object' && value !== null ? (value as Fields) : {}
}
