import { open as openFile } from 'node:fs/promises'
import { UsageError } from '../../server/flags.js'
import { allOf, idempotencyKeyOf, ONCE_FLAG } from './arguments.js'
import { clientCommand } from './client-command.js'
import { fromWireJson, wireJsonLines } from './wire-json.js'

/** The longest request body that any server may accept. */
const BODY_BYTES_MAX = 512 * 1024 * 1024

export const txn = clientCommand({
  operands: ['FILE|-'],
  flags: {
    ...ONCE_FLAG,
  },
  about: `Runs a transaction in one step, all or nothing: the checks and ops of the JSON in FILE or stdin, as POST /v1/txn takes them, and
prints the answer. When a check does not hold nothing is written, and the exit code is 1.`,
  example: `$ echo '{"checks": [{"key": "seat/1", "value": "free"}],
    "ops": [{"op": "put", "key": "seat/1", "value": "Ann"}, {"op": "increment", "key": "sold"}]}' | perkv txn -
{"start_ts":3677245337305088,"commit_ts":3677245337305089,"results":[{},{"value":"1"}]}`,

  async run({ db, txn: open, flags, screen, stdin }) {
    if (open !== undefined) throw new UsageError('another transaction is open: end it first')
    const path = flags.positionals[0] ?? '-'
    const idempotencyKey = idempotencyKeyOf(flags)
    const body = await bodyOf(path, stdin)
    const answer = await db.atomic(body, { as: 'bytes', idempotencyKey })
    if (screen.form === 'table') await screen.write(`${wireJsonLines(answer)}\n`)
    else await screen.line(answer)
    return undefined
  },
})

/** The server checks the content. */
async function bodyOf(path: string, stdin: AsyncIterable<Uint8Array>): Promise<object> {
  const file = path === '-' ? undefined : await openFile(path)
  try {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(
      await allOf(file?.createReadStream({ autoClose: false }) ?? stdin, BODY_BYTES_MAX),
    )
    const body = fromWireJson(text)
    if (typeof body === 'object' && body !== null && !Array.isArray(body)) return body
  } catch (error) {
    if (!(error instanceof SyntaxError || error instanceof TypeError)) throw error
    throw new Unreadable(`${path === '-' ? 'stdin' : path} is not JSON: ${error.message}`)
  } finally {
    await file?.close()
  }
  throw new Unreadable(`${path === '-' ? 'stdin' : path} is not a JSON object with checks and ops`)
}

class Unreadable extends Error {
  readonly code = 'unreadable'
}
