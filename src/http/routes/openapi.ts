import type { FastifyInstance } from 'fastify'
import { once } from '../../event-loop/once.js'
import { answerMade, madeAnswer } from '../wire/made-answer.js'
import { CONTENT_TYPE } from '../wire/media-type.js'
import * as schemas from '../wire/schemas/openapi.js'
import { builtPage } from './built-page.js'
import type { AppContext } from './context.js'
import { routesOf } from './route-list.js'

interface DescribedApp extends Pick<AppContext, 'limits' | 'version'> {
  /** Whether the server asks for tokens. */
  readonly needsTokens: boolean
}

/** `/openapi.json`, whose code is loaded at the first request, so that a start does not pay for it, and `/docs`, which shows it. */
export function openApiRoutes(app: FastifyInstance, context: DescribedApp): void {
  const description = once(async () => {
    const { openApiDocument } = await import('../openapi/document.js')
    const { default: examples } = await import('../openapi/examples.json', { with: { type: 'json' } })
    const document = openApiDocument(routesOf(app), { ...context, examples })
    return madeAnswer(Buffer.from(`${JSON.stringify(document)}\n`), { 'content-type': CONTENT_TYPE.json })
  })
  app.get(
    '/openapi.json',
    { schema: schemas.description, config: { access: 'open', work: 'reading' } },
    async (request, reply) => answerMade(request, reply, await description()),
  )
  builtPage(app, {
    url: '/docs',
    name: 'the reference',
    folder: 'reference',
    files: ['viewer.js', 'page.js', 'style.css'],
    styles: "'self' 'unsafe-inline'", // The viewer makes its styles as it runs.
    schema: schemas.reference,
  })
}
