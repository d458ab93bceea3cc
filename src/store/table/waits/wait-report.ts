import type { WaitForEntry } from '../../../errors/registry.js'
import { SMALL_BODY_BYTES } from '../../../limits.js'
import type { AskKind, Fields } from '../../../oracle/signed-ask.js'
import type { Timestamp } from '../../../timestamp.js'

/** A wait with a number that its process uses only once. */
export interface NumberedWait {
  readonly id: number
  readonly wait: WaitForEntry
}

export interface WaitReport {
  readonly waits: readonly NumberedWait[]
  readonly ended: readonly number[]
}

/** A wait left out of the graph, because it closes a circle. See `waitCircle`. */
export interface FoundCircle {
  readonly id: number
  readonly circle: readonly WaitForEntry[]
}

export interface WaitAsk extends WaitReport {
  readonly server: string
  /** Name that the leader gave to the graph of the report; empty: unknown. */
  readonly graph: string
  /** Grows with each ask of a process, so that a repeated ask is refused. */
  readonly sequence: number
}

export interface WaitAnswer {
  /** If it is not the requested one, this graph does not know the server, and nothing was done. */
  readonly graph: string
  readonly circles: readonly FoundCircle[]
}

/** Limit on the waits of one report, which keeps the body small even with the longest URL. See `costOf`. */
export const REPORT_BYTES_MAX = 11 * 1024
export const ENDED_MAX = 100
export const CIRCLE_BYTES_MAX = 512 * 1024

const NAME_LENGTH_MAX = 128
const NUMBER_CHARS = 17

/** Upper bound of a wait's bytes in an ask or an answer. */
export function costOf({ key }: WaitForEntry): number {
  return Math.ceil(key.length / 3) * 4 + 4 * NUMBER_CHARS
}

/**
 * A repeated ask changes nothing: it names another graph, or its sequence number was seen. A circle in the answer is for the
 * asking server, which looks at the rows before it believes it.
 */
export const LOCK_WAITS: AskKind<WaitAsk, WaitAnswer | 'not_leader'> = {
  name: 'lock-waits',
  askBytesMax: SMALL_BODY_BYTES,
  answerBytesMax: 2 * CIRCLE_BYTES_MAX,
  ask: {
    encode: ({ server, graph, sequence, waits, ended }) => ({
      ...{ server, graph, sequence, ended },
      waits: waits.map(({ id, wait }) => [id, ...rowOf(wait)]),
    }),
    decode({ server, graph, sequence, waits, ended }) {
      if (!isName(server) || !isName(graph) || !isNatural(sequence)) return undefined
      const numbered = listOf(waits, numberedOf)
      const numbers = listOf(ended, (each) => (isNatural(each) ? each : undefined))
      if (numbered === undefined || numbers === undefined) return undefined
      return { server, graph, sequence, waits: numbered, ended: numbers }
    },
  },
  answer: {
    encode(answer): Fields {
      if (answer === 'not_leader') return { not_leader: true }
      return {
        graph: answer.graph,
        circles: answer.circles.map(({ id, circle }) => ({ id, circle: circle.map(rowOf) })),
      }
    },
    decode({ not_leader, graph, circles }) {
      if (not_leader === true) return 'not_leader'
      const found = listOf(circles, circleOf)
      return isName(graph) && found !== undefined ? { graph, circles: found } : undefined
    },
  },
}

type Row = readonly [txn: Timestamp, waitForTxn: Timestamp, key: string]

function rowOf({ txn, waitForTxn, key }: WaitForEntry): Row {
  return [txn, waitForTxn, Buffer.from(key).toString('base64')]
}

function numberedOf(row: unknown): NumberedWait | undefined {
  if (!Array.isArray(row)) return undefined
  const [id, ...rest] = row as unknown[]
  const wait = waitOf(rest)
  return isNatural(id) && wait !== undefined ? { id, wait } : undefined
}

function circleOf(value: unknown): FoundCircle | undefined {
  if (typeof value !== 'object' || value === null) return undefined
  const { id, circle } = value as Fields
  const waits = listOf(circle, waitOf)
  return isNatural(id) && waits !== undefined && waits.length > 1 ? { id, circle: waits } : undefined
}

function waitOf(row: unknown): WaitForEntry | undefined {
  if (!Array.isArray(row) || row.length !== 3) return undefined
  const [txn, waitForTxn, key] = row as unknown[]
  if (!isNatural(txn) || !isNatural(waitForTxn) || typeof key !== 'string') return undefined
  return { txn, waitForTxn, key: Buffer.from(key, 'base64') }
}

/** @returns undefined unless every item decodes. */
function listOf<T>(value: unknown, itemOf: (item: unknown) => T | undefined): T[] | undefined {
  if (!Array.isArray(value)) return undefined
  const items: T[] = []
  for (const each of value as unknown[]) {
    const item = itemOf(each)
    if (item === undefined) return undefined
    items.push(item)
  }
  return items
}

function isName(value: unknown): value is string {
  return typeof value === 'string' && value.length <= NAME_LENGTH_MAX
}

function isNatural(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0
}
