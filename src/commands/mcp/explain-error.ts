import { PROBLEM_TEXTS } from '../../http/openapi/problems.js'
import { allOf } from '../client/arguments.js'
import { clientCommand } from '../client/client-command.js'
import { fromWireJson } from '../client/wire-json.js'
import { type Held, holderOf } from './holder.js'

/** Other transactions that are looked at. */
const HOLDERS_MAX = 5
const PROBLEM_BYTES_MAX = 1024 * 1024

export const explainError = clientCommand({
  operands: ['-'],
  about:
    'Explains an error of PerKV, such as 409 write_conflict or 423 key_locked: what it means, what the program that got it should do, and what has become of the other transaction by now.',
  example: '',

  async run({ db, screen, stdin }) {
    const problem = fieldsOf(fromWireJson(String(await allOf(stdin, PROBLEM_BYTES_MAX))))
    const { code, lock, locks, primary, conflictStartTs } = problem
    const held = [...(Array.isArray(locks) ? locks : [lock]), { primary, startTs: conflictStartTs }].filter(isHeld)
    const { ts: now } = await db.snapshot()
    const others = await Promise.all(held.slice(0, HOLDERS_MAX).map((one) => holderOf(db, one, now)))
    await screen.line({ ...adviceOf(code, problem['reason']), otherTransactions: others })
    return undefined
  },
})

/** What an error means, and what a client does about it, as docs/errors.md has it. */
export function adviceOf(code: unknown, reason: unknown): object {
  const text = Object.entries(PROBLEM_TEXTS).find(([name]) => name === code)?.[1]
  if (text === undefined) return { code, meaning: 'PerKV has no such code' }
  const { cases = {}, ...advice } = text
  const ofReason = Object.entries(cases).find(([name]) => name === reason)
  return { code, ...advice, ...(ofReason && { [ofReason[0]]: ofReason[1] }) }
}

function isHeld(given: unknown): given is Held {
  const { primary, startTs, ttl = 0 } = fieldsOf(given)
  const isKey = (typeof primary === 'string' || primary instanceof Uint8Array) && primary.length > 0
  return isKey && Number.isSafeInteger(startTs) && Number(startTs) > 0 && Number.isSafeInteger(ttl)
}

function fieldsOf(value: unknown): Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {}
}
