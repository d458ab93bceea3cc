import type { FastifyInstance } from 'fastify'
import { once } from '../../event-loop/once.js'
import { answerMade, madeAnswer } from '../wire/made-answer.js'
import { CONTENT_TYPE } from '../wire/media-type.js'
import * as schemas from '../wire/schemas/openapi.js'
import type { AppContext } from './context.js'
import { routesOf } from './route-list.js'

interface DescribedApp extends Pick<AppContext, 'limits' | 'version'> {
  /** Whether the server asks for tokens. */
  readonly needsTokens: boolean
}

/**
 * `/openapi.json` and `/docs`: the description of the API. Its code is loaded at the first request, so that a start does not pay
 * for it.
 */
export function openApiRoutes(app: FastifyInstance, context: DescribedApp): void {
  const config = { access: 'open', work: 'reading' } as const

  async function document(): Promise<Readonly<Record<string, unknown>>> {
    const { openApiDocument } = await import('../openapi/document.js')
    const { default: examples } = await import('../openapi/examples.json', { with: { type: 'json' } })
    return openApiDocument(routesOf(app), { ...context, examples })
  }

  const description = once(async () => {
    return madeAnswer(Buffer.from(`${JSON.stringify(await document())}\n`), { 'content-type': CONTENT_TYPE.json })
  })
  app.get('/openapi.json', { schema: schemas.description, config }, async (request, reply) =>
    answerMade(request, reply, await description()),
  )

  const reference = once(async () => {
    const { referencePage, contentSecurityPolicy } = await import('../openapi/reference-page.js')
    const page = referencePage(await document())
    return madeAnswer(Buffer.from(page), {
      'content-type': 'text/html; charset=utf-8',
      'content-security-policy': contentSecurityPolicy(),
    })
  })
  app.get('/docs', { schema: schemas.reference, config }, async (request, reply) =>
    answerMade(request, reply, await reference()),
  )
}
