import type { FastifyInstance } from 'fastify'
import { KvError } from '../../errors/kv-error.js'
import { builtPage } from './built-page.js'

/** `/console`, and `/`, which leads browsers there and tells everybody else what the server has for people. */
export function consoleRoutes(app: FastifyInstance): void {
  builtPage(app, {
    url: '/console',
    name: 'the console',
    folder: 'console',
    files: ['app.js', 'style.css'],
    styles: "'self'",
  })
  app.get('/', { config: { access: 'open', work: 'watching', isOfPage: true } }, async (request, reply) => {
    if (!request.headers.accept?.includes('text/html'))
      throw new KvError('not_found', 'nothing is at /: see /console, /docs and /openapi.json', {})
    return reply.redirect('console', 303) // Relative, because a proxy may serve this server below a path.
  })
}
