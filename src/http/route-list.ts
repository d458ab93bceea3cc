import type { FastifyInstance, RouteOptions } from 'fastify'

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
