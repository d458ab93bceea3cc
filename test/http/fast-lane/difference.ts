import { timestampFromMs } from '../../../src/timestamp.js'
import type { Dialogue } from './dialogue.js'
import type { Lane, Outcome } from './lane.js'
import { latin1 } from './latin1.js'

/** The same server twice: one passes all connections to node:http, the other one has the lane that is tested. */
export interface Lanes {
  readonly reference: Lane
  readonly tested: Lane
}

export interface Difference {
  readonly reference: string
  /** The reference's answers when each request waits until the one before it is answered. */
  readonly oneByOne: string
  readonly tested: string
}

/**
 * node:http starts pipelined requests at once, and drops answers that are not written yet when it meets malformed bytes or a
 * half-close. So its answers depend on chance. Where the lanes differ, the tested lane must answer as node:http does when
 * bytes come one by one and wait for each answer, but for answers that were dropped.
 */
export async function differenceOf({ reference, tested }: Lanes, dialogue: Dialogue): Promise<Difference | undefined> {
  const [expected, actual] = await Promise.all([reference.run(dialogue), tested.run(dialogue)])
  if (dialogue.end === 'hang-up') {
    // How far the server came before the hang-up is chance.
    if (!actual.isStuck) return undefined
    return { reference: printed(expected), oneByOne: '', tested: printed(actual) }
  }
  const isEager = dialogue.end === 'eager half-close'
  const isMalformed = isBare(answersOf(expected).at(-1))
  // The fast lane waits for the end of a line or a header block, so it may refuse malformed bytes later.
  const print = isEager || isMalformed ? printedEagerly : printed
  if (print(expected) === print(actual)) return undefined
  const oneByOne = await reference.run(slowed(dialogue))
  if (print(oneByOne) === print(actual) || isDropping(oneByOne, actual, isEager)) return undefined
  return { reference: print(expected), oneByOne: print(oneByOne), tested: print(actual) }
}

/**
 * Whether nothing is wrong but that some last answers are missing, perhaps with an answer about malformed bytes in their place:
 * node:http reads on behind a request that closes the connection.
 */
function isDropping(full: Outcome, actual: Outcome, isEager: boolean): boolean {
  if (actual.isStuck || named(changesOf(full)) !== named(changesOf(actual))) return false
  if (!isEager && !(full.isClosedByServer && actual.isClosedByServer)) return false
  const [all, answers] = [full, actual].map((outcome) => answersOf(outcome).filter((answer) => !isBare(answer)))
  return answers?.every((answer, i) => answer === all?.[i]) === true
}

/** Whether an answer is about bytes that are no request: see `bare-answers.ts`. */
function isBare(answer: string | undefined): boolean {
  return answer?.includes('\r\ndate: *\r\nconnection: close\r\n\r\n') === true
}

function answersOf({ answer }: Outcome): string[] {
  const text = undated(answer).replace(TIMESTAMP, (ts) => (isOurs(timestampOf(ts)) ? 'timestamp' : ts))
  return text === '' ? [] : text.split(/(?=HTTP\/1\.1 \d{3} )/)
}

function slowed({ segments }: Dialogue): Dialogue {
  return { segments: runsOf(Buffer.concat(segments)), pacing: 'answered', end: 'half-close' }
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

function printed({ answer, before, isClosedByServer, isStuck, changes }: Outcome): string {
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
  return text.toString('latin1').replace(/(date): \w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT(?=\r\n)/gi, '$1: *')
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
