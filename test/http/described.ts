import { Ajv, type ValidateFunction } from 'ajv'
import type { FastifyInstance, RouteOptions } from 'fastify'
import { expect } from 'vitest'
import { describedRoutes } from '../../src/http/openapi/described-routes.js'
import type { Code } from '../../src/http/openapi/operation.js'
import { problemCodes } from '../../src/http/openapi/problems.js'
import { routesOf } from '../../src/http/routes/route-list.js'
import { isWireBytes } from '../../src/http/wire/bytes.js'
import { splitTarget } from '../../src/http/wire/key-url.js'
import type { AnswerBody } from '../../src/http/wire/schemas/call-schema.js'
import { PROBLEMS } from '../../src/http/wire/schemas/problem.js'
import type { Schema } from '../../src/http/wire/schemas/schema.js'
import type { Method, Sent } from './sent.js'

const ajv = new Ajv({
  formats: { 'date-time': /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/ },
  // Most validators run a few times, so that to compile them is what they cost.
  code: { optimize: false },
})
ajv.addKeyword({ keyword: 'bytes', validate: (_kind: unknown, value: unknown) => isWireBytes(value) })

/** Clients must bear fields that they do not know; here each has to be in the schema. */
function closed(schema: Schema): object {
  const { items, properties, anyOf } = schema
  return {
    ...schema,
    ...(items && { items: closed(items) }),
    ...(anyOf && { anyOf: anyOf.map(closed) }),
    ...(properties && {
      additionalProperties: false,
      properties: Object.fromEntries(
        Object.entries(properties).map(([name, property]) => [name, closed(property as Schema)]),
      ),
    }),
  }
}

const validators = new Map<Schema, ValidateFunction>()

function validatorOf(schema: Schema): ValidateFunction {
  let validate = validators.get(schema)
  if (validate === undefined) {
    validate = ajv.compile(closed(schema))
    validators.set(schema, validate)
  }
  return validate
}

function expectValid(schema: Schema, value: unknown, name: string): void {
  const validate = validatorOf(schema)
  if (!validate(value)) expect.fail(`${name}: ${ajv.errorsText(validate.errors)} in ${JSON.stringify(value)}`)
}

/** An answer as its route describes it. */
export interface Described {
  /** Method, route, status and format. */
  readonly name: string
  readonly schema: Schema | undefined
  readonly values: readonly unknown[]
}

/** Checks an answer against the schemas of its route, a problem against that of its code. MessagePack is not looked into. */
export function describedAnswer(
  app: FastifyInstance,
  method: Method,
  target: string,
  answer: Sent,
): Described | undefined {
  const { statusCode: status, headers, body } = answer
  const format = formatOf(headers['content-type']?.toString())
  const route = routeAt(app, method, target)
  if (method === 'HEAD' || format === 'msgpack' || route?.config?.isInternal) return undefined
  if (status >= 400) {
    const problem = answer.json<{ readonly code: string }>()
    const schema = PROBLEMS.get(problem.code)
    if (schema === undefined) expect.fail(`${method} ${target}: no schema for ${body}`)
    expectValid(schema, problem, `${method} ${target}`)
    expectDocumented(route, method, problem.code as Code)
    return undefined
  }
  if (route?.config?.isOfPage) return undefined
  const described: AnswerBody | undefined = route?.schema?.answers?.[status]
  const name = `${method} ${route?.url} ${status} ${format}`
  if (described === undefined || (format !== 'none' && described[format] === undefined))
    expect.fail(`${method} ${target}: ${name} is not described`)
  if (format === 'none' || format === 'octets' || format === 'text') return { name, schema: undefined, values: [] }
  const schema = described[format] as Schema
  const texts = format === 'json' ? [body] : body.split('\n').filter((line) => line !== '')
  const values = texts.map((text): unknown => JSON.parse(text))
  for (const value of values) expectValid(schema, value, name)
  return { name, schema, values }
}

const DOTS = /\/(?:\.|%2e){1,2}(?:[/?#]|$)/i

function routeAt(app: FastifyInstance, method: Method, target: string): RouteOptions | undefined {
  const at = (sent: string): RouteOptions | undefined =>
    routesOf(app).find((one) => one.method === method && isAt(one.url, splitPath(method, sent)))
  // `inject` leaves the fragment out and resolves dots, as browsers do; sockets do not.
  const asIs = at(target.split('#', 1)[0] as string)
  if (!DOTS.test(target)) return asIs
  const { pathname, search } = new URL(target, 'http://localhost')
  return at(pathname + search) ?? asIs
}

/** The document at /openapi.json tells which problems each call may answer. */
function expectDocumented(route: RouteOptions | undefined, method: Method, code: Code): void {
  const [described] = route === undefined ? [] : describedRoutes([route])
  if (described === undefined) return
  if (code === 'not_found' && described.path.endsWith('{key}')) return // Of a URL that names no key.
  const codes = problemCodes(described.operation, described)
  if (!codes.includes(code))
    expect.fail(`${method} ${described.path} answers ${code}: add it to its entry in src/http/openapi/operations/`)
}

/** Checks an event of a stream, in whatever format it came. */
export function expectEvent(
  app: FastifyInstance,
  url: string,
  { event, data }: { event: string; data: unknown },
): void {
  const route = routesOf(app).find((one) => one.method === 'GET' && isAt(one.url, splitPath('GET', url)))
  const described = route?.schema?.answers?.[200]?.events?.[event]
  const schema = event === 'error' ? PROBLEMS.get((data as { code: string }).code) : described
  if (described === undefined || schema === undefined) expect.fail(`GET ${url}: the event ${event} is not described`)
  expectValid(schema, data, `GET ${url}: ${event}`)
}

function formatOf(contentType: string | undefined): keyof AnswerBody | 'msgpack' | 'none' {
  if (contentType === undefined) return 'none'
  if (contentType.startsWith('application/x-ndjson')) return 'ndjson'
  if (contentType === 'application/msgpack') return 'msgpack'
  if (contentType === 'application/octet-stream') return 'octets'
  return contentType.startsWith('text/') ? 'text' : 'json'
}

/** Of a POST no part of the path is a key. */
function splitPath(method: Method, target: string): string {
  return method === 'POST' ? (target.split('?', 1)[0] ?? '') : splitTarget(target).path
}

function isAt(pattern: string, path: string): boolean {
  const names = pattern.split('/')
  const segments = path.split('/')
  return names.length === segments.length && names.every((name, i) => name === segments[i] || name.startsWith(':'))
}

/** The optional fields of a schema that none of its values has. */
export function unseenFields(schema: Schema, values: readonly unknown[], path: string): string[] {
  if (schema['anyOf'] !== undefined)
    return (schema['anyOf'] as Schema[]).flatMap((one) =>
      unseenFields(
        one,
        values.filter((value) => validatorOf(one)(value)),
        path,
      ),
    )
  if (schema['items'] !== undefined)
    return unseenFields(schema['items'], (values as readonly unknown[][]).flat(), `${path}[]`)
  if (schema['properties'] === undefined) return []
  return Object.entries(schema['properties'] as Record<string, Schema>).flatMap(([name, property]) => {
    const field = `${path}.${name}`
    const given = values.map((value) => (value as Record<string, unknown>)[name]).filter((value) => value !== undefined)
    return given.length === 0 ? [field] : unseenFields(property, given, field)
  })
}
