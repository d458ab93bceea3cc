import { createHash } from 'node:crypto'
import type { FastifyReply, FastifyRequest } from 'fastify'

/** An answer that is made once, and kept as bytes. */
export interface MadeAnswer {
  readonly bytes: Buffer
  /** For clients that accept it. Absent: never sent. */
  readonly gzipped?: Buffer | undefined
  readonly headers: Readonly<Record<string, string>>
  readonly etag: string
}

/** Not `gzip;q=0`, by which a client refuses it. */
const GZIP = /\bgzip\b(?!\s*;\s*q=0(?:\.0*)?\s*(?:,|$))/i

export function madeAnswer(
  bytes: Buffer,
  headers: Readonly<Record<string, string>> & { readonly 'content-type': string },
  gzipped?: Buffer,
): MadeAnswer {
  // Weak where two forms of the same have it.
  const weak = gzipped === undefined ? '' : 'W/'
  const etag = `${weak}"${createHash('sha256').update(bytes).digest('base64url').slice(0, 22)}"`
  const varies = gzipped === undefined ? {} : { vary: 'accept-encoding' }
  // Browsers ask each time, and are told 304.
  return { bytes, gzipped, etag, headers: { ...headers, ...varies, etag, 'cache-control': 'no-cache' } }
}

export function answerMade(request: FastifyRequest, reply: FastifyReply, made: MadeAnswer): FastifyReply {
  const { bytes, gzipped, headers, etag } = made
  const { 'if-none-match': noneMatch, 'accept-encoding': encodings = '' } = request.headers
  const known = noneMatch?.split(',').map((tag) => tag.trim().replace(/^W\//, '')) ?? []
  reply.headers(headers)
  if (known.includes(etag.replace(/^W\//, '')) || known[0] === '*')
    return reply.status(304).removeHeader('content-type').send()
  if (gzipped === undefined || !GZIP.test(encodings)) return reply.send(bytes)
  return reply.header('content-encoding', 'gzip').send(gzipped)
}
