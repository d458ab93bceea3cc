import type { RouteOptions } from 'fastify'
import type { Schema } from '../wire/schemas/schema.js'
import type { DescribedRoute } from './described-route.js'
import { OPERATIONS } from './operations/all.js'

declare module 'fastify' {
  interface FastifyContextConfig {
    /** The route serves a file of the page, and is no call of the API. */
    isOfPage?: boolean
    /** The reference leaves it out: a call between servers, or of another protocol. */
    isInternal?: boolean
  }
}

/** `GET /v1/kv/{key}`. @internal */
export function routeName(method: string, url: string): string {
  return `${method} ${url.replace(/:(\w+)/g, '{$1}')}`
}

export function describedRoutes(routes: readonly RouteOptions[]): DescribedRoute[] {
  const described: DescribedRoute[] = []
  for (const { method, url, schema, config } of routes)
    for (const one of [method].flat()) {
      if (one === 'HEAD' || config?.isOfPage || config?.isInternal) continue
      const name = routeName(one, url)
      const operation = OPERATIONS[name]
      if (operation === undefined)
        throw new Error(
          `${name} is not described: add an entry to the file of its area in src/http/openapi/operations/`,
        )
      const body = schema?.body as Schema | undefined
      described.push({
        method: one,
        path: name.slice(one.length + 1),
        operation,
        access: config?.access ?? 'admin',
        work: config?.work ?? 'writing',
        query: config?.query ?? [],
        queryLists: config?.queryLists ?? [],
        body,
        bodyMayBeEmpty: one === 'POST' && (body?.required ?? []).length === 0,
        takesJson: body !== undefined || (one === 'DELETE' && !name.endsWith('{key}')),
        hasBody: body !== undefined || one === 'DELETE' || operation.bytes !== undefined,
        answers: schema?.answers ?? {},
      })
    }
  const order = Object.keys(OPERATIONS)
  const place = ({ method, path }: DescribedRoute): number => order.indexOf(`${method} ${path}`)
  return described.sort((a, b) => place(a) - place(b))
}
