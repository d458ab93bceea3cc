import { Socket } from 'node:net'
import type { FastifyReply } from 'fastify'
import type { AnswerBudget } from '../store/answer-budget.js'

/** Shorter answers fit into what the system buffers for a connection. */
const LONG_BYTES = 16 * 1024

/** Long answers on their way: they count until the client has taken them, and a client that takes nothing is cut off. */
export class UntakenAnswers {
  constructor(
    readonly budget: AnswerBudget,
    readonly stalledMsMax: number,
  ) {}

  /** @param payload that is about to be sent. */
  watch(reply: FastifyReply, payload: unknown): void {
    const bytes = typeof payload === 'string' || payload instanceof Uint8Array ? payload.length : undefined
    if (payload === undefined || payload === null || (bytes !== undefined && bytes < LONG_BYTES)) return
    this.#cutOffIfStalled(reply)
    if (bytes === undefined) return // A stream has no more in memory than it reads ahead.
    this.budget.hold(bytes)
    let isHeld = true
    const release = (): void => {
      if (isHeld) this.budget.release(bytes)
      isHeld = false
    }
    reply.raw.once('finish', release).once('close', release)
  }

  #cutOffIfStalled({ raw }: FastifyReply): void {
    const arm = (socket: unknown): void => {
      if (socket instanceof Socket) socket.setTimeout(this.stalledMsMax)
    }
    if (raw.socket === null) raw.once('socket', arm)
    else arm(raw.socket)
    raw.on('timeout', () => {
      if (raw.writableLength > 0) raw.destroy()
      else arm(raw.socket) // It is the server that is slow.
    })
  }
}
