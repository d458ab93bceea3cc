import { gunzipSync } from 'node:zlib'
import { Validator } from '@seriousme/openapi-schema-validator'
import { Ajv2020 } from 'ajv/dist/2020.js'
import { expect, test } from 'vitest'
import { ERRORS } from '../../../src/errors/registry.js'
import { routeName } from '../../../src/http/openapi/described-routes.js'
import { problemName } from '../../../src/http/openapi/document.js'
import { OPERATIONS } from '../../../src/http/openapi/operations/all.js'
import { routesOf } from '../../../src/http/routes/route-list.js'
import { skipOthers } from '../../store/test-store.js'
import { type Json, type TestServer, testServers } from '../support.js'

const start = testServers()

const METHODS = ['get', 'head', 'put', 'post', 'delete']

interface Parameter {
  readonly name: string
  readonly in: string
  readonly description?: string
  readonly schema: Json
  readonly example?: unknown
}

interface Media {
  readonly schema?: Json
  readonly examples?: Readonly<Record<string, { readonly value: unknown }>>
}

interface Operation {
  readonly operationId: string
  readonly tags: readonly string[]
  readonly summary: string
  readonly description: string
  readonly parameters: readonly Parameter[]
  readonly requestBody?: { readonly content: Readonly<Record<string, Media>> }
  readonly responses: Readonly<
    Record<string, { readonly description: string; readonly content?: Readonly<Record<string, Media>> }>
  >
}

interface Document {
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>
  readonly components: { readonly schemas: Readonly<Record<string, Json>>; readonly responses: Json }
}

async function documentOf(server: TestServer): Promise<Document> {
  const answer = await server.get('/openapi.json')
  expect(answer.statusCode, answer.body.slice(0, 500)).toBe(200)
  return answer.json<Document>()
}

function operationsOf({ paths }: Document): [name: string, operation: Operation][] {
  return Object.entries(paths).flatMap(([path, item]) =>
    METHODS.flatMap((method): [string, Operation][] => {
      const operation = item[method]
      return operation === undefined ? [] : [[`${method.toUpperCase()} ${path}`, operation]]
    }),
  )
}

test('it is a valid OpenAPI document, with stable names', { tags: ['long'] }, async () => {
  const document = await documentOf(await start())
  const { valid, errors } = await new Validator().validate(document as never)
  expect(errors).toBeUndefined()
  expect(valid).toBe(true)
  const operations = operationsOf(document).map(([, operation]) => operation)
  const ids = operations.map(({ operationId }) => operationId)
  expect(new Set(ids).size).toBe(ids.length)
  for (const id of ids) expect(id).toMatch(/^[a-z][A-Za-z]+$/)
  const lost = [...JSON.stringify(document).matchAll(/"#\/components\/schemas\/(\w+)"/g)].filter(
    ([, name = '']) => document.components.schemas[name] === undefined,
  )
  expect(lost).toEqual([])
})

test('each route is in the document, and none besides', { tags: ['long'] }, async () => {
  skipOthers('offers every route')
  const server = await start()
  const described = operationsOf(await documentOf(server)).map(([name]) => name)
  const registered = routesOf(server.app)
    .filter(({ config }) => config?.isOfPage !== true)
    .flatMap(({ method, url }) => [method].flat().map((one) => routeName(one, url)))
  const isListed = (name: string): boolean => !name.startsWith('HEAD ') || described.includes(name)
  expect(registered.filter(isListed).sort(), 'src/http/openapi/operations/ and the routes').toEqual(described.sort())
  expect(
    Object.keys(OPERATIONS).filter((name) => !registered.includes(name)),
    'entries without a route',
  ).toEqual([])
})

test('each code of a problem is in the document, and no other', async () => {
  const { components, paths } = await documentOf(await start())
  const codes = Object.keys(ERRORS).map(problemName)
  const { anyOf: named } = components.schemas['Problem'] as { anyOf: { $ref: string }[] }
  expect(named.map(({ $ref }) => $ref.split('/').at(-1)).sort()).toEqual([...codes].sort())
  const used = JSON.stringify([paths, components.responses])
  // Any path may answer it, so no operation does.
  const unused = codes.filter((name) => name !== 'MethodNotAllowed' && !used.includes(`"#/components/schemas/${name}"`))
  expect(unused).toEqual([])
})

test('everything is described, and has examples that its schema permits', { tags: ['long'] }, async () => {
  const document = await documentOf(await start())
  const ajv = new Ajv2020({ strict: false, validateFormats: false })
  const { schemas } = document.components
  const referring = (schema: Json): Json =>
    JSON.parse(JSON.stringify(schema).replaceAll('#/components/schemas/', 'document#/$defs/')) as Json
  ajv.addSchema({ $id: 'document', $defs: referring(schemas) })
  const faults: string[] = []
  const hold = (schema: Json, value: unknown, name: string): void => {
    const validate = ajv.compile(referring(schema))
    if (!validate(value)) faults.push(`${name}: ${ajv.errorsText(validate.errors)} in ${JSON.stringify(value)}`)
  }
  const mediaOf = (content: Readonly<Record<string, Media>> | undefined, name: string): void => {
    for (const [type, { schema, examples = {} }] of Object.entries(content ?? {}))
      for (const { value } of Object.values(examples))
        if (schema !== undefined && type.endsWith('json') && type !== 'application/x-ndjson') hold(schema, value, name)
  }
  for (const [name, { summary, description, tags, parameters, requestBody, responses, ...rest }] of operationsOf(
    document,
  )) {
    if (summary === '' || description === '' || tags.length !== 1) faults.push(`${name} is not described`)
    for (const parameter of parameters) {
      if (!parameter.description) faults.push(`${name}: ${parameter.name} is not described`)
      if (parameter.example !== undefined) hold(parameter.schema, parameter.example, `${name}: ${parameter.name}`)
    }
    const samples = (rest as Json)['x-codeSamples'] as readonly { source: string }[] | undefined
    if (samples === undefined) faults.push(`${name} has no example`)
    mediaOf(requestBody?.content, `${name}, request`)
    for (const [status, { content }] of Object.entries(responses)) mediaOf(content, `${name}, ${status}`)
    const json = Object.entries(responses).filter(([status]) => status.startsWith('2'))
    if (json.some(([, { content }]) => content?.['application/json'] && !content['application/json'].examples))
      faults.push(`${name} has no example of its answer`)
  }
  expect(faults).toEqual([])
})

test('it is made once, and sent again only when it has changed', { tags: ['long'] }, async () => {
  const server = await start({ tokens: 'rw secret-secret-secret' })
  const first = await server.get('/openapi.json')
  expect(first.statusCode).toBe(200)
  expect(first.headers['cache-control']).toBe('no-cache')
  const etag = String(first.headers['etag']).replace(/^W\//, '')
  for (const tag of [etag, `W/${etag}`, `"other", ${etag}`, '*']) {
    const again = await server.get('/openapi.json', { 'if-none-match': tag })
    expect([again.statusCode, again.body]).toEqual([304, ''])
  }
  expect((await server.get('/openapi.json', { 'if-none-match': '"other"' })).rawPayload).toEqual(first.rawPayload)
  expect(first.json()).toMatchObject({ security: [{ token: [] }] })
})

test('the document is compressed for those who accept it', { tags: ['long'] }, async () => {
  const path = '/openapi.json'
  const server = await start()
  const { app } = server
  const plain = await server.get(path)
  expect([plain.headers['content-encoding'], plain.headers['vary']]).toEqual([undefined, 'accept-encoding'])
  for (const accepted of ['gzip', 'br, GZIP;q=0.5', 'gzip;q=1.0']) {
    const { headers, rawPayload } = await app.inject({ url: path, headers: { 'accept-encoding': accepted } })
    expect([headers['content-encoding'], headers['etag']]).toEqual(['gzip', plain.headers['etag']])
    expect(rawPayload.length).toBeLessThan(plain.rawPayload.length / 4)
    expect(gunzipSync(rawPayload)).toEqual(plain.rawPayload)
  }
  for (const accepted of ['identity', 'br', 'gzip;q=0', 'gzip; q=0.000, br'])
    expect(
      (await app.inject({ url: path, headers: { 'accept-encoding': accepted } })).headers['content-encoding'],
    ).toBe(undefined)
})
