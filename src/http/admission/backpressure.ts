import type { ServerResponse } from 'node:http'
import { Socket } from 'node:net'
import type { FastifyReply } from 'fastify'
import { LONG_ANSWER_BYTES } from '../../limits.js'
import type { AnswerBudget } from '../../store/answer-budget.js'
import { whenOver } from '../connections/answer-end.js'
import { LongAnswer } from '../wire/long-answer.js'

/** Counts long answers as memory until their clients have received them. A client that receives nothing is cut off. */
export class Backpressure {
  constructor(
    readonly budget: AnswerBudget,
    readonly stalledMsMax: number,
  ) {}

  watch({ raw }: FastifyReply, payload: unknown): void {
    const bytes = bytesOf(payload)
    if (bytes !== undefined && bytes < LONG_ANSWER_BYTES) return
    this.#cutOffIfStalled(raw)
    if (bytes === undefined) return // A stream holds only the page that it reads ahead.
    const lease = this.budget.lease()
    lease.hold(bytes)
    whenOver(raw, () => lease.end())
  }

  #cutOffIfStalled(raw: ServerResponse): void {
    const arm = (socket: unknown): void => {
      if (socket instanceof Socket) socket.setTimeout(this.stalledMsMax)
    }
    if (raw.socket === null) raw.once('socket', arm)
    else arm(raw.socket)
    raw.on('timeout', () => {
      if (raw.writableLength > 0) raw.destroy()
      else arm(raw.socket) // Nothing waits to be sent: the server is slow, not the client.
    })
  }
}

/** Bytes in memory; undefined for a stream, which is made while the client receives it. */
function bytesOf(payload: unknown): number | undefined {
  if (payload === undefined || payload === null) return 0
  if (typeof payload === 'string' || payload instanceof Uint8Array) return payload.length
  return payload instanceof LongAnswer ? payload.memoryBytes : undefined
}
