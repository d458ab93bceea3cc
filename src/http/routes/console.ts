import { createHash } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { promisify } from 'node:util'
import { gzip } from 'node:zlib'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { KvError } from '../../errors/kv-error.js'

/** The files of the page, which `npm run build` makes of `src/console/`. */
const TYPES = {
  'index.html': 'text/html; charset=utf-8',
  'app.js': 'text/javascript; charset=utf-8',
  'style.css': 'text/css; charset=utf-8',
} as const
type Name = keyof typeof TYPES

/** Beside the bundled program, or below the root when the sources run. */
const FOLDERS = ['./console/', '../../../dist/console/']

/** In place of the policy of `SAFE_HEADERS`: the page's own script and style, and requests to this server only. */
const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; " +
  "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

interface File {
  readonly bytes: Buffer
  readonly gzipped: Buffer
  readonly etag: string
}

/**
 * `/console`, `/console/app.js`, `/console/style.css`: a page without data, so it needs no token. Its files are read on first use, and
 * kept.
 */
export function consoleRoutes(app: FastifyInstance): void {
  const files = new Map<Name, File>()
  const config = { access: 'open', work: 'watching', isPage: true } as const

  async function send(request: FastifyRequest, reply: FastifyReply, name: Name): Promise<FastifyReply> {
    const file = files.get(name) ?? (await readPart(name))
    files.set(name, file)
    reply.headers({
      'content-security-policy': POLICY,
      'cache-control': 'no-cache', // The browser asks each time, and is told 304.
      etag: file.etag,
      vary: 'accept-encoding',
    })
    if (request.headers['if-none-match'] === file.etag) return reply.status(304).send()
    reply.header('content-type', TYPES[name])
    if (!/\bgzip\b/.test(request.headers['accept-encoding'] ?? '')) return reply.send(file.bytes)
    return reply.header('content-encoding', 'gzip').send(file.gzipped)
  }

  app.get('/console', { config }, (request, reply) => send(request, reply, 'index.html'))
  app.get('/console/app.js', { config }, (request, reply) => send(request, reply, 'app.js'))
  app.get('/console/style.css', { config }, (request, reply) => send(request, reply, 'style.css'))
}

/** @throws KvError `not_found` when the page was not built. */
async function readPart(name: Name): Promise<File> {
  for (const folder of FOLDERS) {
    const bytes = await readFile(new URL(folder + name, import.meta.url)).catch(() => undefined)
    if (bytes === undefined) continue
    const etag = `"${createHash('sha256').update(bytes).digest('base64url').slice(0, 22)}"`
    return { bytes, gzipped: await promisify(gzip)(bytes), etag }
  }
  throw new KvError('not_found', 'the console was not built: run npm run build', {})
}
