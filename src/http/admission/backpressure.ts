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
    /** A POST that changes nothing: its answer may be refused as that of a GET. */
    onlyReads?: boolean
  }
}

/** Counts long answers as memory until their clients have received them. A client that receives nothing is cut off. */
export class Backpressure {
  constructor(
    readonly budget: AnswerBudget,
    readonly stalledMsMax: number,
  ) {}

  /** @returns false: the caller has too many answers in memory already, and this one does not have to be sent. */
  watch(request: FastifyRequest, { raw }: FastifyReply, payload: unknown): boolean {
    const bytes = bytesOf(payload)
    if (bytes !== undefined && bytes < LONG_ANSWER_BYTES) return true
    const caller = callerOf(request)
    // An answer that is made once for all takes no memory, and one that is made while the client receives it only the page that is read ahead.
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
      else arm(raw.socket) // Nothing waits to be sent: the server is slow, not the client.
    })
  }
}

/** A client has to learn what a change has done. */
export function mayRefuse({ method, routeOptions }: FastifyRequest): boolean {
  return method === 'GET' || method === 'HEAD' || routeOptions.config.onlyReads === true
}

/** Bytes in memory; undefined for a stream, which is made while the client receives it. */
function bytesOf(payload: unknown): number | undefined {
  if (payload === undefined || payload === null) return 0
  if (typeof payload === 'string' || payload instanceof Uint8Array) return payload.length
  return payload instanceof LongAnswer ? payload.memoryBytes : undefined
}
