import type { FastifyReply, FastifyRequest } from 'fastify'
import type { Grant } from '../../access/grant.js'
import { encodeAnswer } from './encode-answer.js'
import { acceptedFormats, CONTENT_TYPE } from './media-type.js'
import type { Problem } from './problem.js'
import type { Plain } from './wire.js'

export function answerFormat(accept: string | undefined): 'json' | 'msgpack' {
  for (const format of acceptedFormats(accept)) if (format === 'json' || format === 'msgpack') return format
  return 'json'
}

export function problemFormat(accept: string | undefined): 'json' | 'msgpack' {
  const formats = acceptedFormats(accept)
  return formats.length > 0 && formats.every((format) => format === 'msgpack') ? 'msgpack' : 'json'
}

export function answer(request: FastifyRequest, reply: FastifyReply, data: Plain): FastifyReply {
  const format = answerFormat(request.headers.accept)
  reply.header('content-type', CONTENT_TYPE[format])
  return reply.send(encodeAnswer(data, format, request.grant))
}

export function answerProblem(request: FastifyRequest, reply: FastifyReply, problem: Problem): FastifyReply {
  const { status, headers, body } = problem
  const format = problemFormat(request.headers.accept)
  reply.status(status).headers(headers).header('content-type', problemType(format))
  // Malformed URLs have no grant: fastify answers them before any hook runs.
  return reply.send(encodeAnswer(body, format, request.grant as Grant | undefined))
}

export function problemType(format: 'json' | 'msgpack'): string {
  return format === 'json' ? CONTENT_TYPE.problem : CONTENT_TYPE.msgpack
}
