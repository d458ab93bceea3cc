import { timestampFromMs } from '../../../src/timestamp.js'
import type { Dialogue } from './dialogue.js'
import type { HandedOver, Lane, Outcome } from './lane.js'
import { latin1 } from './latin1.js'

/** The same server twice: one passes all connections to node:http, the other one has the lane that is tested. */
export interface Lanes {
  readonly reference: Lane
  readonly tested: Lane
}

export interface Difference {
  readonly tested: string
  /** What the reference answered, by what the client did. */
  readonly reference: Readonly<Record<string, string>>
}

/** node:http's timing is chance, so a client is tried this often before the lane is said to be wrong. */
const TRIES = 10

/** A difference that repeats: where a busy machine delays the one lane only, the client's half-close may come too early for it. */
export async function differenceOf(lanes: Lanes, dialogue: Dialogue): Promise<Difference | undefined> {
  return (await differenceOnce(lanes, dialogue)) && differenceOnce(lanes, dialogue)
}

/**
 * node:http starts pipelined requests at once, and drops answers that are not written yet when it meets malformed bytes or a
 * half-close. So its answers depend on timing. The tested lane is right where node:http answers the same to one of these clients:
 * one that does the same; one that sends byte by byte and waits for each answer, as the fast lane answers all that it has begun;
 * one that waits so for the requests that the fast lane has served, and then sends what that gave to node:http in one piece. The
 * last one's bytes are events for node:http, as they are after hand-over. Then it runs no ticks between two requests, so it meets
 * malformed bytes before the answer in front of them has ended, and drops the refusal.
 */
async function differenceOnce({ reference, tested }: Lanes, dialogue: Dialogue): Promise<Difference | undefined> {
  const [expected, actual] = await Promise.all([reference.run(dialogue), tested.run(dialogue)])
  if (dialogue.end === 'hang-up') {
    // How far the server came before the hang-up is chance.
    if (!actual.isStuck) return undefined
    return { reference: { same: printed(expected) }, tested: printed(actual) }
  }
  const isEager = dialogue.end === 'eager half-close'
  if (isSame(expected, actual, isEager)) return undefined
  const { handedOver } = actual
  const others: Record<string, () => Promise<Outcome>> = {
    'one by one': () => reference.run(slowed(dialogue)),
    ...(handedOver && { 'as handed over': () => reference.run(givenOver(dialogue, handedOver), true) }),
    'same again': () => reference.run(dialogue),
  }
  const found: Record<string, string> = { same: printed(expected) }
  for (let left = TRIES; left > 0; left--)
    for (const [name, run] of Object.entries(others)) {
      const outcome = await run()
      if (isSame(outcome, actual, isEager)) return undefined
      found[name] = printed(outcome)
    }
  if ((isEager || isRefused(actual)) && (await isDropping(reference, dialogue, actual))) return undefined
  return { reference: found, tested: printed(actual) }
}

/**
 * The fast lane waits for the end of a line or a header block, so it may refuse malformed bytes later. Then both must end with the
 * refusal, but it may come after the client's half-close.
 */
function isSame(expected: Outcome, actual: Outcome, isEager: boolean): boolean {
  const print = isEager || (isRefused(expected) && isRefused(actual)) ? printedEagerly : printed
  return print(expected) === print(actual)
}

/**
 * After an early half-close, and before a refusal of malformed bytes, node:http drops what it has not answered. Of the requests before hand-over no answer may be missing,
 * but over TLS, where Node ends its own side at once.
 */
async function isDropping(reference: Lane, dialogue: Dialogue, actual: Outcome): Promise<boolean> {
  const { handedOver, isStuck } = actual
  if (isStuck || (handedOver === undefined && !reference.isTls)) return false
  const all = await reference.run(slowed(dialogue))
  const bytes = Buffer.concat(dialogue.segments).subarray(0, handedOver?.served ?? 0)
  const served = await reference.run({ segments: runsOf(bytes), pacing: 'answered', end: 'half-close' })
  if (named(changesOf(all)) !== named(changesOf(actual))) return false
  const answered = isRefused(actual) ? unrefused(actual) : actual
  return isBeginning(answered, all) && (reference.isTls || isBeginning(served, answered))
}

/** Without the last answer: node:http puts a refusal into the place of the answers that it drops. */
function unrefused(outcome: Outcome): Outcome {
  return { ...outcome, answer: outcome.answer.subarray(0, outcome.answer.lastIndexOf('HTTP/1.1 ')) }
}

/** Whether the answers are the first ones of all. */
function isBeginning(first: Outcome, all: Outcome): boolean {
  const [part = '', whole = ''] = [first, all].map(({ answer }) => named(answer))
  return whole.startsWith(part) && (whole.length === part.length || whole.startsWith('HTTP/1.1 ', part.length))
}

/** Whether the last answer is about bytes that are no request: see `bare-answers.ts`. */
function isRefused({ answer }: Outcome): boolean {
  const text = undated(answer)
  return text.includes('\r\ndate: *\r\nconnection: close\r\n\r\n', text.lastIndexOf('HTTP/1.1 '))
}

function slowed({ segments }: Dialogue): Dialogue {
  return { segments: runsOf(Buffer.concat(segments)), pacing: 'answered', end: 'half-close' }
}

function givenOver({ segments, pacing, end }: Dialogue, { served, given }: HandedOver): Dialogue {
  const bytes = Buffer.concat(segments)
  const rest: Buffer[] = [bytes.subarray(served, served + given)]
  let at = 0
  for (const segment of segments) {
    at += segment.length
    if (at > served + given) rest.push(bytes.subarray(Math.max(served + given, at - segment.length), at))
  }
  return { prelude: runsOf(bytes.subarray(0, served)), segments: rest, pacing, end }
}

/** Byte by byte, but for the insides of long runs of one byte, as bodies and values have. */
function runsOf(bytes: Buffer): Buffer[] {
  const runs: Buffer[] = []
  for (let from = 0; from < bytes.length; ) {
    let to = from + 1
    while (to < bytes.length && bytes[to] === bytes[from]) to++
    if (to - from < LONG_RUN) to = from + 1
    runs.push(bytes.subarray(from, to))
    from = to
  }
  return runs
}
const LONG_RUN = 50

function printed({ answer, before, isClosedByServer, isStuck, changes }: Omit<Outcome, 'handedOver'>): string {
  const end = latin1(`\n--- closed by the ${isClosedByServer ? 'server' : 'client'}\n`)
  const rest = Buffer.concat([latin1(`\n---${isStuck ? ' is stuck' : ''}\n`), changesOf({ changes })])
  return named(Buffer.concat([answer.subarray(0, before), end, answer.subarray(before), rest]))
}

function printedEagerly({ answer, isStuck, changes }: Outcome): string {
  return printed({ answer, before: 0, isClosedByServer: false, isStuck, changes })
}

function changesOf({ changes }: Pick<Outcome, 'changes'>): Buffer {
  return latin1(changes.join('\n'))
}

function undated(text: Buffer): string {
  return text
    .toString('latin1')
    .replace(/(date): \w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT(?=\r\n)/gi, '$1: *')
    .replace(/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z/g, '*')
}

/** In JSON, in an ETag, in the changes; in MessagePack. */
const TIMESTAMP = /\b\d{16}\b|\xcf\0[\s\S]{7}/g
const HOUR_MS = 3_600_000
const [EARLIEST, LATEST] = [-HOUR_MS, 24 * HOUR_MS].map((ms) => timestampFromMs(Date.now() + ms)) as [number, number]
const isOurs = (ts: number): boolean => ts > EARLIEST && ts < LATEST

function timestampOf(written: string): number {
  return written.startsWith('\xcf') ? Number(latin1(written).readBigUInt64BE(1)) : Number(written)
}

/**
 * As text without dates, and with a name for each timestamp. Requests that were pipelined commit in any order, so the names
 * tell which timestamps are the same and not which are later.
 */
function named(bytes: Buffer): string {
  const names = new Map<number, string>()
  return undated(bytes).replace(TIMESTAMP, (written) => {
    const ts = timestampOf(written)
    if (!isOurs(ts)) return written
    const name = names.get(ts) ?? `timestamp ${names.size}`
    names.set(ts, name)
    return name
  })
}
