import type { FastifyReply, FastifyRequest } from 'fastify'
import { acceptedFormats, CONTENT_TYPE } from './media-type.js'
import { type Plain, toJson, toMsgpack } from './wire.js'

/** Sends data in the format that the client prefers; JSON when it says nothing that this server speaks. */
export function answer(request: FastifyRequest, reply: FastifyReply, data: Plain): FastifyReply {
  const format = acceptedFormats(request.headers.accept).find((one) => one === 'json' || one === 'msgpack')
  if (format === 'msgpack') return reply.header('content-type', CONTENT_TYPE.msgpack).send(toMsgpack(data))
  return reply.header('content-type', CONTENT_TYPE.json).send(toJson(data))
}

/** Problems are JSON unless MessagePack is all that the client accepts. */
export function answerProblem(request: FastifyRequest, reply: FastifyReply, status: number, body: Plain): FastifyReply {
  reply.status(status)
  const formats = acceptedFormats(request.headers.accept)
  if (formats.length > 0 && formats.every((format) => format === 'msgpack'))
    return reply.header('content-type', CONTENT_TYPE.msgpack).send(toMsgpack(body))
  return reply.header('content-type', CONTENT_TYPE.problem).send(toJson(body))
}
