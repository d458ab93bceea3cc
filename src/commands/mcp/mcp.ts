import { connect } from '../../client/index.js'
import { type Flags, flagsHelp, readFlags } from '../../server/flags.js'
import { CONNECT_MS_MAX, failureOf } from '../client/client-command.js'
import type { Command } from '../command.js'
import { linesOf } from '../lines.js'
import { STDOUT } from '../output.js'
import { SERVER_FLAGS, serverAddress } from '../server-flags.js'
import { failed, INVALID_REQUEST, McpServer } from './mcp-server.js'
import { READ_TOOLS, WRITE_TOOLS } from './tools.js'

/** Room for a long value in base64. */
const LINE_BYTES_MAX = 16 * 1024 * 1024
/** A call that has no answer by then fails. */
const CALL_MS_MAX = 30_000
/** Further lines are read when one of these has its answer. */
const CALLS_MAX = 64

const MCP_FLAGS = {
  write: { help: 'offers put, delete and transaction too', variable: false },
  ...SERVER_FLAGS,
} as const satisfies Flags

export const mcp: Command = {
  flags: MCP_FLAGS,
  operands: [],
  help: `Usage: perkv mcp [flags]

Offers a server to assistants and editors that speak the Model Context Protocol, on stdin and stdout: tools that read pairs, past
versions, locks and the state of the server, and that explain errors. It writes nothing, unless --write is given. The program that
uses it starts it, and ends it by closing stdin.

Flags:
${flagsHelp(MCP_FLAGS, 22)}
Example, in the configuration of such a program:
  {"mcpServers": {"perkv": {"command": "perkv", "args": ["mcp", "--server", "http://127.0.0.1:7400"]}}}
`,

  async run(args, env) {
    const flags = readFlags(MCP_FLAGS, args, env)
    const { url, token, ca } = serverAddress(flags, env)
    const db = connect(url.href, { token, ca, connectTimeoutMs: CONNECT_MS_MAX, timeoutMs: CALL_MS_MAX })
    const server = new McpServer(db, flags.isSet('write') ? { ...READ_TOOLS, ...WRITE_TOOLS } : READ_TOOLS)
    process.stdout.on('error', () => process.exit()) // cli.ts has reported the error, unless the pipe was closed.
    const send = async (message: object | undefined): Promise<void> => {
      if (message !== undefined) await STDOUT.write(Buffer.from(`${JSON.stringify(message)}\n`))
    }
    if (process.stdin.isTTY)
      process.stderr.write('perkv: waiting for a program that speaks MCP: see perkv mcp --help\n')
    const calls = new Set<Promise<void>>()
    try {
      for await (const line of linesOf(process.stdin, LINE_BYTES_MAX)) {
        if (line.toString('latin1').trim() === '') continue
        const call = server.answer(line).then(send)
        calls.add(call)
        void call.finally(() => calls.delete(call))
        if (calls.size >= CALLS_MAX) await Promise.race(calls)
      }
      await Promise.all(calls)
    } catch (error) {
      if (error instanceof RangeError) await send(failed(null, INVALID_REQUEST, error.message))
      throw failureOf(error)
    } finally {
      await db.close()
    }
  },
}
