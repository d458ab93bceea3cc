import type { FastifyReply, FastifyRequest } from 'fastify'
import type { Grant } from '../access/grant.js'
import { withoutForeignKeys } from './foreign-keys.js'
import { acceptedFormats, CONTENT_TYPE } from './media-type.js'
import { type Plain, toJson, toMsgpack } from './wire.js'

/** Sends data in the format that the client prefers; JSON when it says nothing that this server speaks. */
export function answer(request: FastifyRequest, reply: FastifyReply, data: Plain): FastifyReply {
  const { grant } = request
  const shown = grant.isScoped ? withoutForeignKeys(data, grant) : data
  const format = acceptedFormats(request.headers.accept).find((one) => one === 'json' || one === 'msgpack')
  if (format === 'msgpack') return reply.header('content-type', CONTENT_TYPE.msgpack).send(toMsgpack(shown))
  return reply.header('content-type', CONTENT_TYPE.json).send(`${toJson(shown)}\n`)
}

/** Problems are JSON unless MessagePack is all that the client accepts. */
export function answerProblem(
  request: FastifyRequest,
  reply: FastifyReply,
  status: number,
  problem: Plain,
): FastifyReply {
  reply.status(status)
  if (status === 401) reply.header('www-authenticate', 'Bearer')
  const grant: Grant | undefined = request.grant // None where a URL is so bad that no hook has run.
  const body = grant?.isScoped ? withoutForeignKeys(problem, grant) : problem
  const formats = acceptedFormats(request.headers.accept)
  if (formats.length > 0 && formats.every((format) => format === 'msgpack'))
    return reply.header('content-type', CONTENT_TYPE.msgpack).send(toMsgpack(body))
  return reply.header('content-type', CONTENT_TYPE.problem).send(`${toJson(body)}\n`)
}
