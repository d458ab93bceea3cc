import type { RouteOptions } from 'fastify'
import { ERRORS } from '../../errors/registry.js'
import type { Limits } from '../../limits.js'
import type { Access } from '../admission/access.js'
import * as admin from '../wire/schemas/admin.js'
import type { AnswerBody } from '../wire/schemas/call-schema.js'
import * as consumers from '../wire/schemas/consumers.js'
import * as leases from '../wire/schemas/leases.js'
import * as observers from '../wire/schemas/observers.js'
import { PROBLEMS, ProblemEntry } from '../wire/schemas/problem.js'
import { ObserverName } from '../wire/schemas/riders.js'
import type { Schema } from '../wire/schemas/schema.js'
import * as txn from '../wire/schemas/txn.js'
import * as values from '../wire/schemas/values.js'
import { CLIENT_SAMPLES } from './client-samples.js'
import type { DescribedRoute } from './described-route.js'
import { describedRoutes } from './described-routes.js'
import { curlOf, type Example, type Examples } from './example.js'
import type { Code, Parameter, Tag } from './operation.js'
import { ANSWER_HEADERS, PATH, QUERY, REQUEST_HEADERS } from './parameters.js'
import { problemCodes, problemDescription } from './problems.js'
import { type Json, SchemaWriter } from './schema-writer.js'

export interface DocumentOptions {
  readonly limits: Limits
  readonly version: string
  /** Whether the server asks for tokens. */
  readonly needsTokens: boolean
  readonly examples: Examples
}

const TAGS: Readonly<Record<Tag, string>> = {
  Keys: 'One key, or many. Each call is a transaction of its own.',
  Transactions: 'A transaction in one request, or over several.',
  Observers: 'Run code for what changes, its effects exactly once.',
  'Change feed': 'What is committed, whole and in order, each once.',
  Webhooks: 'The server sends the change feed to URLs.',
  Leases: 'One holder at a time, for a while; transactions that commit only while it is the holder.',
  Percolator: 'The protocol, for clients that coordinate their own transactions. Names and meaning follow TiKV.',
  Administration: 'Collection, pins, compaction, back-up and restore.',
  Server: 'Health, state and description of the server.',
}

const INFO = `A transactional key-value server: Percolator's protocol on LevelDB, behind HTTP.

**Bodies** are JSON or MessagePack, by \`Content-Type\` and \`Accept\`. An unknown field or parameter is refused. A POST without a body counts as \`{}\`.

**Bytes.** Keys and values are byte strings. In JSON they are text (its UTF-8 bytes) or \`{"base64": "..."}\`; answers use text where the bytes are UTF-8. In MessagePack send \`bin\` or \`str\`; answers hold \`bin\`.

**Timestamps** are positive safe integers: \`unix_ms * 2048 + counter\`. In optional fields 0 means not given.

**Ranges** are \`[start, end)\`.

**Flags** of a query are true when they are \`true\`, \`1\` or bare, and false when they are \`false\` or \`0\`.

**Failures** are \`application/problem+json\` (RFC 9457). Programs test \`code\`. With status 409, 412 and 423, \`retryable\` says whether the same transaction, run again from its beginning, may succeed. Any path answers 404 \`not_found\` where it does not exist, 405 \`method_not_allowed\` for another method, and HEAD where it answers GET.`

const TOKENS: Readonly<Record<Access, string>> = {
  open: 'Needs no token.',
  read: 'Needs a token, any; to write, one that may.',
  write: 'Needs a token that may write.',
  read_all: 'Needs a token without prefixes.',
  admin: 'Needs a token that may write and has no prefixes.',
}

/** Schemas with a name of their own in the document; each comes after the schemas that it contains. */
const NAMED: Readonly<Record<string, Schema>> = {
  Key: values.Key,
  Value: values.Value,
  Bound: values.Bound,
  Prefix: values.givenRange.prefix,
  Timestamp: values.described(values.Timestamp, '`unix_ms * 2048 + counter`'),
  Name: ObserverName,
  Pair: values.Pair,
  LockInfo: values.LockInfo,
  Op: txn.TxnOp,
  Results: txn.Results,
  Observer: observers.get.answers[200]?.json ?? values.Nothing,
  Consumer: consumers.get.answers[200]?.json ?? values.Nothing,
  Lease: leases.get.answers[200]?.json ?? values.Nothing,
  Pin: admin.Pin,
  ProblemEntry,
}

/** The description of the server as OpenAPI 3.1. @throws Error for a route, a parameter or a status without an entry. */
export function openApiDocument(routes: readonly RouteOptions[], options: DocumentOptions): Json {
  const problems = Object.fromEntries(
    [...PROBLEMS].map(([code, schema]) => [
      problemName(code),
      { ...schema, title: code, description: problemDescription(code as Code) },
    ]),
  )
  const writer = new SchemaWriter(options.limits, { ...NAMED, ...problems })
  const paths: Record<string, Record<string, Json>> = {}
  for (const route of describedRoutes(routes)) {
    const written = new OperationWriter(route, writer, options)
    const { head } = route.operation
    paths[route.path] = {
      ...paths[route.path],
      [route.method.toLowerCase()]: written.whole(),
      ...(head && { head: written.head(head) }),
    }
  }
  return {
    openapi: '3.1.1',
    info: {
      title: 'PerKV',
      version: options.version,
      summary: 'A transactional key-value server',
      description: INFO,
      license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
    },
    servers: [{ url: '/', description: 'This server.' }],
    security: options.needsTokens ? [{ token: [] }] : [{}, { token: [] }],
    tags: Object.entries(TAGS).map(([name, description]) => ({ name, description })),
    paths,
    components: {
      schemas: {
        ...writer.schemas,
        Problem: {
          description: 'Any failure. `code` is stable; `title` and `detail` are for people and may change.',
          anyOf: Object.keys(problems).map((name) => ({ $ref: `#/components/schemas/${name}` })),
        },
      },
      responses: writer.responses,
      securitySchemes: {
        token: { type: 'http', scheme: 'bearer', description: 'A token of the server’s token file, if it has one.' },
      },
    },
  }
}

/** `write_conflict` is `WriteConflict`. @internal */
export function problemName(code: string): string {
  return code.replace(/(?:^|_)([a-z])/g, (_, letter: string) => letter.toUpperCase())
}

class OperationWriter {
  readonly #route: DescribedRoute
  readonly #writer: SchemaWriter
  readonly #options: DocumentOptions
  readonly #examples: readonly Example[]

  constructor(route: DescribedRoute, writer: SchemaWriter, options: DocumentOptions) {
    this.#route = route
    this.#writer = writer
    this.#options = options
    this.#examples = options.examples[route.operation.id] ?? []
  }

  whole(): Json {
    const { operation, access } = this.#route
    const body = this.#body()
    return {
      operationId: operation.id,
      tags: [operation.tag],
      summary: operation.summary,
      description: `${operation.description}\n\n${TOKENS[access]}`,
      ...(access === 'open' && { security: [] }),
      parameters: this.#parameters(),
      ...(body && { requestBody: body }),
      responses: { ...this.#answers(), ...this.#problems() },
      ...this.#samples(this.#route.method, operation.id, this.#examples),
    }
  }

  head({ id, summary }: { readonly id: string; readonly summary: string }): Json {
    const { access, operation, answers } = this.#route
    const bare = Object.keys(answers).map((status) => [status, this.#bare(Number(status))])
    return {
      operationId: id,
      tags: [operation.tag],
      summary,
      description: `What GET answers, without the body.\n\n${TOKENS[access]}`,
      ...(access === 'open' && { security: [] }),
      parameters: this.#parameters(),
      responses: { ...Object.fromEntries(bare), '4XX': { description: 'The status that GET has.' } },
      ...this.#samples('HEAD', id, this.#options.examples[id] ?? []),
    }
  }

  #samples(method: string, id: string, examples: readonly Example[]): Json {
    const samples = examples.map((example) => ({
      lang: 'Shell',
      label: example.name,
      source: curlOf(method, this.#route.path, example),
    }))
    const ofClient = CLIENT_SAMPLES[id]
    const all = [...samples, ...(ofClient ? [{ lang: 'TypeScript', label: 'perkv/client', source: ofClient }] : [])]
    return all.length === 0 ? {} : { 'x-codeSamples': all }
  }

  #parameters(): Json[] {
    const { path, query, queryLists, operation } = this.#route
    const inPath = [...path.matchAll(/\{(\w+)\}/g)].map(([, name = '']) => name)
    return [
      ...inPath.map((name) =>
        this.#parameter('path', name, operation.path?.[name] ?? PATH[name], this.#exampleOf('path', name)),
      ),
      ...query.map((name) => ({
        ...this.#parameter('query', name, operation.query?.[name] ?? QUERY[name], this.#exampleOf('query', name)),
        ...(queryLists.includes(name) && { explode: true }),
      })),
      ...(operation.headers ?? []).map((name) =>
        this.#parameter('header', name, REQUEST_HEADERS[name], this.#exampleOf('headers', name.toLowerCase())),
      ),
    ]
  }

  #exampleOf(part: 'path' | 'query' | 'headers', name: string): string | undefined {
    return this.#examples.map((example) => example[part]?.[name]).find((value) => value !== undefined)
  }

  #parameter(where: 'path' | 'query' | 'header', name: string, found: Parameter | undefined, text?: string): Json {
    const { method, path } = this.#route
    if (found === undefined)
      throw new Error(
        `${method} ${path}: the parameter ${name} is not described: add it to src/http/openapi/parameters.ts`,
      )
    const schema = typeof found.schema === 'function' ? found.schema(this.#options.limits) : found.schema
    return {
      name,
      in: where,
      ...(where === 'path' && { required: true }),
      description: found.description,
      schema: this.#writer.write(schema),
      ...(text !== undefined && { example: exampleValue(schema, text) }),
    }
  }

  #body(): Json | undefined {
    const { body, bodyMayBeEmpty, operation } = this.#route
    const examples = examplesOf(this.#examples.map(({ name, body }) => [name, body]))
    if (body !== undefined)
      return {
        required: !bodyMayBeEmpty,
        content: { 'application/json': { schema: this.#writer.write(body), ...examples }, 'application/msgpack': {} },
      }
    if (operation.bytes === undefined) return undefined
    return {
      description: operation.bytes,
      required: true,
      content: { 'application/octet-stream': examples, ...(operation.id !== 'restore' && { '*/*': {} }) },
    }
  }

  #answers(): Json {
    return Object.fromEntries(
      Object.entries(this.#route.answers).map(([status, body]) => {
        const content = this.#content(Number(status), body)
        return [status, { ...this.#bare(Number(status)), ...(content && { content }) }]
      }),
    )
  }

  #bare(status: number): Json {
    const { description = 'Done.', headers = [] } = this.#route.operation.answers?.[status] ?? {}
    const described = Object.fromEntries(headers.map((name) => [name, ANSWER_HEADERS[name]]))
    return { description, ...(headers.length > 0 && { headers: described }) }
  }

  #content(status: number, { json, octets, text, ndjson, events }: AnswerBody): Json | undefined {
    const given = (type: string): Json =>
      examplesOf(
        this.#examples
          .filter(({ answer }) => answer.status === status && answer.type === type)
          .map(({ name, answer }) => [name, answer.body]),
      )
    const content = {
      ...(json && {
        'application/json': { schema: this.#writer.write(json), ...given('application/json') },
        'application/msgpack': {},
      }),
      ...(octets && { 'application/octet-stream': given('application/octet-stream') }),
      ...(text && { [text]: { schema: { type: 'string' } } }),
      ...(ndjson && {
        'application/x-ndjson': {
          schema: { ...this.#writer.write(ndjson), description: 'One line.' },
          ...given('application/x-ndjson'),
        },
      }),
      ...(events && { 'text/event-stream': { schema: this.#events(events), ...given('text/event-stream') } }),
    }
    return Object.keys(content).length === 0 ? undefined : content
  }

  #events(events: Readonly<Record<string, Schema>>): Json {
    return {
      description: 'One event, with its `data` as JSON.',
      anyOf: Object.entries(events).map(([name, data]) => ({
        type: 'object',
        title: name,
        properties: {
          event: { const: name },
          data: name === 'error' ? { $ref: '#/components/schemas/Problem' } : this.#writer.write(data),
          id: { type: 'string' },
        },
        required: ['event', 'data'],
      })),
    }
  }

  #problems(): Json {
    const byStatus = new Map<number, Code[]>()
    for (const code of problemCodes(this.#route.operation, this.#route)) {
      const { status } = ERRORS[code]
      byStatus.set(status, [...(byStatus.get(status) ?? []), code])
    }
    return Object.fromEntries(
      [...byStatus].map(([status, codes]) => [status, this.#problem(codes, this.#problemExamples(status))]),
    )
  }

  #problem(codes: readonly Code[], examples: Json): Json {
    const name = codes.map(problemName).join('Or')
    if (Object.keys(examples).length > 0) return problemResponse(codes, examples)
    this.#writer.responses[name] ??= problemResponse(codes, {})
    return { $ref: `#/components/responses/${name}` }
  }

  #problemExamples(status: number): Json {
    return examplesOf(
      this.#examples.filter(({ answer }) => answer.status === status).map(({ name, answer }) => [name, answer.body]),
    )
  }
}

function problemResponse(codes: readonly Code[], examples: Json): Json {
  const refs = codes.map((code) => ({ $ref: `#/components/schemas/${problemName(code)}` }))
  return {
    description: codes.map((code) => `\`${code}\``).join(', '),
    ...headersOf(codes),
    content: {
      'application/problem+json': { schema: refs.length === 1 ? refs[0] : { anyOf: refs }, ...examples },
    },
  }
}

function headersOf(codes: readonly Code[]): Json {
  const headers = {
    ...(codes.includes('overloaded') && {
      'Retry-After': { description: 'Seconds, of `overloaded`.', schema: { type: 'integer' } },
    }),
    ...(codes.includes('unauthorized') && { 'WWW-Authenticate': { schema: { const: 'Bearer' } } }),
  }
  return Object.keys(headers).length === 0 ? {} : { headers }
}

function examplesOf(named: readonly (readonly [name: string, value: unknown])[]): Json {
  const given = named.filter(([, value]) => value !== undefined)
  if (given.length === 0) return {}
  return { examples: Object.fromEntries(given.map(([name, value]) => [exampleKey(name), { summary: name, value }])) }
}

function exampleKey(name: string): string {
  return name.toLowerCase().replace(/[^a-z0-9]+/g, '-')
}

function exampleValue(schema: Schema, text: string): unknown {
  if (schema.type === 'integer') return Number(text)
  if (schema.type === 'boolean') return text !== 'false'
  return schema.type === 'array' ? [text] : text
}
