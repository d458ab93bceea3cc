import type { ServerResponse } from 'node:http'
import { Socket } from 'node:net'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { LONG_ANSWER_BYTES } from '../../limits.js'
import type { AnswerBudget } from '../../store/answer-budget.js'
import { whenOver } from '../connections/answer-end.js'
import { LongAnswer } from '../wire/long-answer.js'
import { isMade } from '../wire/made-answer.js'
import { callerOf } from './access.js'

declare module 'fastify' {
  interface FastifyContextConfig {
    /** A POST that changes nothing: like that of a GET, its answer may be refused. */
    onlyReads?: boolean
  }
}

/** Counts long answers as memory until their clients have received them. A client that receives nothing is cut off. */
export class Backpressure {
  constructor(
    readonly budget: AnswerBudget,
    readonly stalledMsMax: number,
  ) {}

  /** @returns false when the answer must not be sent: the caller has too many answers in memory already. */
  watch(request: FastifyRequest, { raw }: FastifyReply, payload: unknown): boolean {
    const bytes = payloadBytes(payload)
    if (bytes !== undefined && bytes < LONG_ANSWER_BYTES) return true
    const caller = callerOf(request)
    // A shared answer takes no memory of its own; a generated one only the page that is read ahead.
    const isCounted = bytes !== undefined && !isMade(payload)
    if (isCounted && mayRefuse(request) && !this.budget.hasRoomFor(caller)) {
      if (payload instanceof LongAnswer) payload.destroy()
      return false
    }
    this.#cutOffIfStalled(raw)
    if (!isCounted) return true
    const lease = this.budget.lease(caller)
    lease.hold(bytes)
    whenOver(raw, () => lease.end())
    return true
  }

  #cutOffIfStalled(raw: ServerResponse): void {
    const arm = (socket: unknown): void => {
      if (socket instanceof Socket) socket.setTimeout(this.stalledMsMax)
    }
    if (raw.socket === null) raw.once('socket', arm)
    else arm(raw.socket)
    raw.on('timeout', () => {
      if (raw.writableLength > 0) raw.destroy()
      else arm(raw.socket) // No bytes wait to be sent: the server is slow, not the client.
    })
  }
}

/** Whether the answer may be refused. The client must learn the outcome of a change. */
export function mayRefuse({ method, routeOptions }: FastifyRequest): boolean {
  return method === 'GET' || method === 'HEAD' || routeOptions.config.onlyReads === true
}

/** Bytes in memory; undefined for a stream, which is generated while the client receives it. */
function payloadBytes(payload: unknown): number | undefined {
  if (payload === undefined || payload === null) return 0
  if (typeof payload === 'string' || payload instanceof Uint8Array) return payload.length
  return payload instanceof LongAnswer ? payload.memoryBytes : undefined
}
