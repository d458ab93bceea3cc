import type { FastifyInstance, RouteOptions } from 'fastify'
import { invalid, KvError } from '../../errors/kv-error.js'
import type { ErrorHandler } from '../wire/error-handler.js'
import { splitTarget } from '../wire/key-url.js'

const lists = new WeakMap<FastifyInstance, RouteOptions[]>()

/** To be called before the first route. */
export function collectRoutes(app: FastifyInstance): void {
  const routes: RouteOptions[] = []
  lists.set(app, routes)
  app.addHook('onRoute', (route) => void routes.push(route))
}

/** Every route that there is, as it was registered. */
export function routesOf(app: FastifyInstance): readonly RouteOptions[] {
  return lists.get(app) ?? []
}

/** Answers requests that no route takes, before their bodies are looked at. */
export function refuseUnroutable(app: FastifyInstance, answerError: ErrorHandler): void {
  app.setNotFoundHandler((request, reply) => {
    answerError(unroutable(app, request.method, request.originalUrl), request, reply)
  })
  app.addHook('onRequest', (request, _reply, done) => {
    done(request.is404 ? unroutable(app, request.method, request.originalUrl) : undefined)
  })
}

/** Why nothing answers this method and target. */
function unroutable(app: FastifyInstance, method: string, target: string): KvError {
  if (target.includes('#')) return invalid('path', 'a URL ends before its #: write %23 for one in a key')
  const [path = ''] = target.split('?', 1)
  const allow = methodsAt(app, splitTarget(target).path, path)
  if (allow.length === 0) return new KvError('not_found', `there is no path ${path}`, {})
  return new KvError('method_not_allowed', `${path} takes ${allow.join(', ')} and not ${method}`, { allow })
}

/** @param paths ways to write one path: `/v1/kv/batch_get` is a key to GET and a call to POST. */
function methodsAt(app: FastifyInstance, ...paths: readonly string[]): readonly string[] {
  const asked = paths.map((path) => path.split('/'))
  const methods = routesOf(app).flatMap(({ url, method }) => {
    const pattern = url.split('/')
    return asked.some((segments) => matches(pattern, segments)) ? method : []
  })
  return [...new Set(methods)].sort()
}

function matches(pattern: readonly string[], segments: readonly string[]): boolean {
  return (
    pattern.length === segments.length &&
    pattern.every((name, i) => name === segments[i] || (name.startsWith(':') && segments[i] !== ''))
  )
}
