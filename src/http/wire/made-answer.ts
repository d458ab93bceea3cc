import { createHash } from 'node:crypto'
import { promisify } from 'node:util'
import { gzip } from 'node:zlib'
import type { FastifyReply, FastifyRequest } from 'fastify'

export interface MadeAnswer {
  readonly bytes: Buffer
  /** For clients that accept gzip. */
  readonly gzipped: Buffer
  readonly headers: Readonly<Record<string, string>>
  /** The ETag without its `W/`. */
  readonly tag: string
}

const made = new WeakSet<object>()

/** Whether the bytes are shared, so that an answer with them takes no memory. */
export function isMade(payload: unknown): boolean {
  return payload instanceof Uint8Array && made.has(payload)
}

/** Excludes `gzip;q=0`, by which a client refuses it. */
const GZIP = /\bgzip\b(?!\s*;\s*q=0(?:\.0*)?\s*(?:,|$))/i

export async function madeAnswer(
  bytes: Buffer,
  headers: Readonly<Record<string, string>> & { readonly 'content-type': string },
  gzipped?: Buffer,
): Promise<MadeAnswer> {
  const tag = `"${createHash('sha256').update(bytes).digest('base64url').slice(0, 22)}"`
  // The ETag is weak, because both forms have the same. With `no-cache` browsers ask each time, and get 304.
  const kept = { vary: 'accept-encoding', etag: `W/${tag}`, 'cache-control': 'no-cache' }
  const compressed = gzipped ?? (await promisify(gzip)(bytes))
  made.add(bytes).add(compressed)
  return { bytes, gzipped: compressed, tag, headers: { ...headers, ...kept } }
}

export function answerMade(request: FastifyRequest, reply: FastifyReply, made: MadeAnswer): FastifyReply {
  const { bytes, gzipped, headers, tag } = made
  const { 'if-none-match': noneMatch, 'accept-encoding': encodings = '' } = request.headers
  const known = noneMatch?.split(',').map((tag) => tag.trim().replace(/^W\//, '')) ?? []
  reply.headers(headers)
  if (known.includes(tag) || known[0] === '*') return reply.status(304).removeHeader('content-type').send()
  if (!GZIP.test(encodings)) return reply.send(bytes)
  return reply.header('content-encoding', 'gzip').send(gzipped)
}
