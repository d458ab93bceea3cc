import type { FastifyInstance, RouteOptions } from 'fastify'
import { invalid, KvError } from '../../errors/kv-error.js'
import type { ErrorHandler } from '../wire/error-handler.js'
import { splitTarget } from '../wire/key-url.js'

declare module 'fastify' {
  interface FastifyContextConfig {
    /** A file for browsers, which neither the description of the API nor its schemas know. */
    isPage?: true
  }
}

const lists = new WeakMap<FastifyInstance, RouteOptions[]>()

/** Must be called before the first route. */
export function collectRoutes(app: FastifyInstance): void {
  const routes: RouteOptions[] = []
  lists.set(app, routes)
  app.addHook('onRoute', (route) => void routes.push(route))
}

/** The routes of the API, without pages. */
export function routesOf(app: FastifyInstance): readonly RouteOptions[] {
  return allOf(app).filter(({ config }) => config?.isPage !== true)
}

function allOf(app: FastifyInstance): readonly RouteOptions[] {
  return lists.get(app) ?? []
}

export function refuseUnroutable(app: FastifyInstance, answerError: ErrorHandler): void {
  app.setNotFoundHandler((request, reply) => {
    answerError(unroutable(app, request.method, request.originalUrl), request, reply)
  })
  app.addHook('onRequest', (request, _reply, done) => {
    done(request.is404 ? unroutable(app, request.method, request.originalUrl) : undefined)
  })
}

/** The error for a method and target without a route. */
function unroutable(app: FastifyInstance, method: string, target: string): KvError {
  if (target.includes('#')) return invalid('path', 'a URL ends before its #: write %23 for one in a key')
  const [path = ''] = target.split('?', 1)
  const allow = methodsAt(app, splitTarget(target).path, path)
  if (allow.length === 0) return new KvError('not_found', `there is no path ${path}`, {})
  return new KvError('method_not_allowed', `${path} takes ${allow.join(', ')} and not ${method}`, { allow })
}

/** @param paths readings of one path: `/v1/kv/batch_get` is a key for GET and a call for POST. */
function methodsAt(app: FastifyInstance, ...paths: readonly string[]): readonly string[] {
  const asked = paths.map((path) => path.split('/'))
  const methods = allOf(app).flatMap(({ url, method }) => {
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
