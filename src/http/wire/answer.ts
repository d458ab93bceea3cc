import type { FastifyReply, FastifyRequest } from 'fastify'
import type { Grant } from '../../access/grant.js'
import { encodeAnswer } from './encode-answer.js'
import { acceptedFormats, CONTENT_TYPE } from './media-type.js'
import type { Plain } from './wire.js'

/** Sends data in the format that the client prefers; JSON when it accepts no format of this server. */
export function answer(request: FastifyRequest, reply: FastifyReply, data: Plain): FastifyReply {
  const format = acceptedFormats(request.headers.accept).find((one) => one === 'json' || one === 'msgpack')
  const isPacked = format === 'msgpack'
  reply.header('content-type', isPacked ? CONTENT_TYPE.msgpack : CONTENT_TYPE.json)
  return send(reply, data, isPacked, request.grant)
}

/** Problems are sent as JSON, unless the client accepts only MessagePack. */
export function answerProblem(
  request: FastifyRequest,
  reply: FastifyReply,
  status: number,
  problem: Plain,
): FastifyReply {
  reply.status(status)
  if (status === 401) reply.header('www-authenticate', 'Bearer')
  const formats = acceptedFormats(request.headers.accept)
  const isPacked = formats.length > 0 && formats.every((format) => format === 'msgpack')
  reply.header('content-type', isPacked ? CONTENT_TYPE.msgpack : CONTENT_TYPE.problem)
  return send(reply, problem, isPacked, request.grant)
}

/** @param grant undefined for malformed URLs: fastify answers them before any hook runs. */
function send(reply: FastifyReply, data: Plain, isPacked: boolean, grant: Grant | undefined): FastifyReply {
  return reply.send(encodeAnswer(data, isPacked ? 'msgpack' : 'json', grant))
}
