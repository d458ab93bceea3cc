import { createHash } from 'node:crypto'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { CONTENT_TYPE } from '../wire/media-type.js'
import * as schemas from '../wire/schemas/openapi.js'
import type { AppContext } from './context.js'
import { routesOf } from './route-list.js'

/** An answer that is made once, and kept as bytes. */
interface Made {
  readonly bytes: Buffer
  readonly etag: string
  readonly headers: Readonly<Record<string, string>>
}

interface DescribedApp extends Pick<AppContext, 'limits' | 'version'> {
  /** Whether the server asks for tokens. */
  readonly needsTokens: boolean
}

/** `/openapi.json` and `/docs`: the description of the API. Its code is loaded at the first request, so that a start does not pay for it. */
export function openApiRoutes(app: FastifyInstance, context: DescribedApp): void {
  const config = { access: 'open', work: 'reading' } as const

  async function document(): Promise<Readonly<Record<string, unknown>>> {
    const { openApiDocument } = await import('../openapi/document.js')
    const { default: examples } = await import('../openapi/examples.json', { with: { type: 'json' } })
    return openApiDocument(routesOf(app), { ...context, examples })
  }

  const description = once(async () => {
    return made(`${JSON.stringify(await document())}\n`, { 'content-type': CONTENT_TYPE.json })
  })
  app.get('/openapi.json', { schema: schemas.description, config }, async (request, reply) =>
    answerMade(request, reply, await description()),
  )

  const reference = once(async () => {
    const { referencePage, contentSecurityPolicy } = await import('../openapi/reference-page.js')
    const page = referencePage(await document())
    return made(page, {
      'content-type': 'text/html; charset=utf-8',
      'content-security-policy': contentSecurityPolicy(),
    })
  })
  app.get('/docs', { schema: schemas.reference, config }, async (request, reply) =>
    answerMade(request, reply, await reference()),
  )
}

/** @returns a function that calls `make` at its first call, and again only after a failure. */
function once<T>(make: () => Promise<T>): () => Promise<T> {
  let pending: Promise<T> | undefined
  return () => {
    pending ??= make().catch((error: unknown) => {
      pending = undefined
      throw error
    })
    return pending
  }
}

function made(text: string, headers: Readonly<Record<string, string>>): Made {
  const bytes = Buffer.from(text)
  const etag = `"${createHash('sha256').update(bytes).digest('base64url').slice(0, 22)}"`
  return { bytes, etag, headers: { ...headers, etag, 'cache-control': 'no-cache' } }
}

function answerMade(request: FastifyRequest, reply: FastifyReply, { bytes, etag, headers }: Made): FastifyReply {
  const known = request.headers['if-none-match']?.split(',').map((tag) => tag.trim().replace(/^W\//, '')) ?? []
  reply.headers(headers)
  if (known.includes(etag) || known[0] === '*') return reply.status(304).removeHeader('content-type').send()
  return reply.send(bytes)
}
