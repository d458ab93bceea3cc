import { spawn } from 'node:child_process'
import { join } from 'node:path'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js'
import { afterAll, expect, test } from 'vitest'
import { CLI, ENV, finish, killAll, startProcess, withTempDir } from './server-process.js'

afterAll(killAll)

const READING = ['scan', 'get', 'history', 'count', 'explain_locks', 'explain_error', 'status']

/** The client of the official SDK, with `perkv mcp` as its child. */
async function withClient(args: readonly string[], run: (client: Client) => Promise<void>): Promise<void> {
  const client = new Client({ name: 'test', version: '1' })
  const env = Object.fromEntries(
    Object.entries(ENV).filter((entry): entry is [string, string] => entry[1] !== undefined),
  )
  await client.connect(new StdioClientTransport({ command: process.execPath, args: [CLI, 'mcp', ...args], env }))
  await run(client).finally(() => client.close())
}

async function textOf(client: Client, name: string, args: Record<string, unknown> = {}): Promise<string> {
  const { content, isError } = await client.callTool({ name, arguments: args })
  const text = (content as readonly { readonly text: string }[])[0]?.text ?? ''
  expect(isError, text).toBeFalsy()
  return text
}

test.concurrent("the SDK's client reads a server, and writes where that is allowed", () =>
  withTempDir(async (directory) => {
    const server = await startProcess(join(directory, 'data'))
    await withClient(['--server', server.url, '--write'], async (client) => {
      const { tools } = await client.listTools()
      expect(tools.map(({ name }) => name)).toEqual([...READING, 'put', 'delete', 'transaction'])
      const writing = tools.filter(({ annotations }) => annotations?.destructiveHint)
      expect(writing.map(({ name }) => name)).toEqual(['put', 'delete', 'transaction'])
      await textOf(client, 'put', { key: 'seat/1', value: 'Ann' })
      await textOf(client, 'transaction', { body: { ops: [{ op: 'put', key: 'seat/2', value: 'Eva' }] } })
    })
    await withClient(['--server', server.url], async (client) => {
      expect(client.getServerVersion()?.name).toBe('perkv')
      expect(client.getInstructions()).toContain('commit_ts')
      await client.ping()
      const { tools } = await client.listTools()
      expect(tools.map(({ name, annotations }) => (annotations?.readOnlyHint ? name : undefined))).toEqual(READING)
      expect(
        (await textOf(client, 'scan', { prefix: 'seat/' })).split('\n').map((line) => JSON.parse(line)),
      ).toMatchObject([
        { key: 'seat/1', value: 'Ann' },
        { key: 'seat/2', value: 'Eva' },
      ])
      await expect(client.callTool({ name: 'put', arguments: { key: 'a', value: 'b' } })).rejects.toThrow(
        'no tool "put"',
      )
    })
    await server.stop('SIGTERM')
  }))

/** What `perkv mcp` does with a whole input. */
function run(input: string | Buffer) {
  const child = spawn(process.execPath, [CLI, 'mcp', '--server', 'http://127.0.0.1:1'], { env: ENV })
  child.stdin.on('error', () => {}) // It does not read to the end of a line that is too long.
  child.stdin.end(input)
  return finish(child)
}

const call = (id: number, method: string, params = {}) => JSON.stringify({ jsonrpc: '2.0', id, method, params })

test.concurrent('every line is answered when its answer is there, and the end of the input is the end', async () => {
  const finished = await run(`${call(1, 'tools/call', { name: 'status' })}\r\n \n{\n${call(2, 'ping')}`)
  expect(finished).toMatchObject({ code: 0, stderr: '' })
  const answers = finished.stdout.trimEnd().split('\n')
  const content = [{ type: 'text', text: expect.stringContaining('no server was reached') }]
  expect(answers.map((line) => JSON.parse(line))).toMatchObject([
    { id: null, error: { code: -32700 } },
    { id: 2, result: {} },
    { id: 1, result: { content, isError: true } },
  ])
})

test.concurrent('a line without an end is refused', async () => {
  const finished = await run(Buffer.alloc(17 * 2 ** 20, '['))
  expect(finished).toMatchObject({ code: 1, stderr: 'perkv: a line of over 16777216 bytes\n' })
  expect(JSON.parse(finished.stdout)).toMatchObject({ id: null, error: { code: -32600 } })
})
