import { readFile, writeFile } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import { expect, test, vi } from 'vitest'
import { type Example, type Examples, targetOf } from '../../../src/http/openapi/example.js'
import { OPERATIONS } from '../../../src/http/openapi/operations/all.js'
import { Targets } from '../../../src/webhooks/targets.js'
import { Stream } from '../streaming.js'
import { type Json, type Method, type Sent, type TestServer, testServers } from '../support.js'
import { type Asked, type Call, exampleTour } from './example-tour.js'

const start = testServers()
const FILE = fileURLToPath(new URL('../../../src/http/openapi/examples.json', import.meta.url))
/** `PERKV_TEST_RECORD=1 npx vitest run test/http/openapi/examples.test.ts` writes the examples again. */
const RECORDS = process.env['PERKV_TEST_RECORD'] === '1'

const ROUTES = new Map(
  Object.entries(OPERATIONS).flatMap(([route, { id, head }]) => {
    const [method = '', path = ''] = route.split(' ')
    return [[id, { method, path }], ...(head ? [[head.id, { method: 'HEAD', path }] as const] : [])] as const
  }),
)

const KEPT_HEADERS = ['etag', 'idempotency-replayed', 'content-disposition', 'allow', 'link']

/** Sends the examples of the tour, and notes what came back. */
class Recorder {
  readonly examples: Record<string, Example[]> = {}
  readonly #server: TestServer
  readonly #bytes: (() => Promise<Buffer>) | undefined

  constructor(server: TestServer, bytes?: () => Promise<Buffer>) {
    this.#server = server
    this.#bytes = bytes
  }

  readonly call: Call = async (id, name, asked = {}) => {
    const route = ROUTES.get(id)
    if (route === undefined) throw new Error(`${id} is no operation of src/http/openapi/operations/`)
    const target = targetOf(route.path, asked)
    const answer = asked.headers?.['accept']?.startsWith('text/event-stream')
      ? await this.#events(target, asked)
      : answerOf(await this.#send(route.method as Method, target, asked))
    if (name !== undefined)
      this.examples[id] = [...(this.examples[id] ?? []), { name, ...asked, answer: shortened(id, answer) }]
    const body = typeof answer.body === 'object' ? (answer.body as Json) : {}
    return { body, etag: answer.headers?.['etag'] ?? '' }
  }

  async #send(method: Method, target: string, { headers = {}, body }: Asked): Promise<Sent> {
    if (this.#bytes !== undefined) return this.#server.send(method, target, {}, await this.#bytes())
    const isJson = typeof body === 'object'
    const type: Record<string, string> = isJson ? { 'content-type': 'application/json' } : {}
    const payload = isJson ? JSON.stringify(body) : (body as string | undefined)
    return this.#server.send(method, target, { ...type, ...headers }, payload)
  }

  /** The events up to the first that says where the stream is. */
  async #events(target: string, { headers }: Asked): Promise<Example['answer']> {
    const stream = await Stream.open(this.#server, target, headers)
    let text = 'retry: 1000\n\n'
    for (let more = true; more; ) {
      const next = await stream.next()
      if (next === undefined) throw new Error(`${target} has ended`)
      const { event, data, id } = next
      text += `event: ${event}\ndata: ${JSON.stringify(data)}\n${id === undefined ? '' : `id: ${id}\n`}\n`
      more = event === 'pair'
    }
    stream.close()
    // A stream that is not over yet would hold the collection back.
    await vi.waitFor(async () => {
      const { watches, feed } = (await this.#server.get('/v1/status')).json<Json>()
      expect({ watches, feed }).toMatchObject({ watches: 0, feed: { live: 0, behind: 0 } })
    })
    return { status: stream.status, type: 'text/event-stream', body: text }
  }
}

function answerOf({ statusCode: status, headers: all, body }: Sent): Example['answer'] {
  const type = all['content-type']?.toString().split(';', 1)[0]
  const headers = Object.fromEntries(
    KEPT_HEADERS.filter((name) => all[name] !== undefined).map((name) => [name, String(all[name])]),
  )
  return {
    status,
    ...(type !== undefined && { type }),
    ...(Object.keys(headers).length > 0 && { headers }),
    ...(type?.endsWith('json') && type !== 'application/x-ndjson' && body !== ''
      ? { body: JSON.parse(body) as unknown }
      : body !== '' && type !== undefined && { body }),
  }
}

/** Without what is too long to show, or tells that this is a test. */
function shortened(id: string, answer: Example['answer']): Example['answer'] {
  const { body, ...rest } = answer
  if (id === 'backUp' || id === 'readReference') return rest
  if (id === 'readMetrics')
    return {
      ...rest,
      body: String(body)
        .match(/^.*perkv_commits_total.*\n/gm)
        ?.join(''),
    }
  if (id === 'readDescription') {
    const { openapi, info } = body as Json
    return { ...rest, body: { openapi, info: { title: (info as Json)['title'] }, paths: {} } }
  }
  return id === 'readStatus' ? { ...rest, body: { ...(body as Json), version: '0.2.0' } } : answer
}

/** What stays the same from run to run. */
function shapeOf(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(shapeOf)
  if (typeof value !== 'object' || value === null) return value === null ? null : typeof value
  return Object.fromEntries(Object.entries(value).map(([name, field]) => [name, shapeOf(field)]))
}

function shapeOfExample({ name, answer: { status, type, headers, body }, ...asked }: Example): unknown {
  const { code } = (typeof body === 'object' ? body : {}) as Json
  return { name, asked: shapeOf(asked), status, type, code, headers: Object.keys(headers ?? {}), body: shapeOf(body) }
}

function shapesOf(examples: Examples): Json {
  return Object.fromEntries(Object.entries(examples).map(([id, list]) => [id, list.map(shapeOfExample)]))
}

/** The new examples, but the old ones where they are still right, so that a change of one call changes few lines. */
function kept(examples: Examples, before: Examples): Examples {
  const same = (one: Example, other: Example): boolean =>
    JSON.stringify(shapeOfExample(one)) === JSON.stringify(shapeOfExample(other))
  return Object.fromEntries(
    Object.entries(examples).map(([id, list]) => [
      id,
      list.map((example) => before[id]?.find((old) => same(old, example)) ?? example),
    ]),
  )
}

test('the examples of the document are what a server answers', { tags: ['long'] }, async () => {
  const webhookTargets = Targets.parse('https://hooks.example.com/')
  if (typeof webhookTargets === 'string') throw new Error(webhookTargets)
  const first = await start({ webhookTargets })
  const empty = await start()
  const recorder = new Recorder(first)
  const elsewhere = new Recorder(empty, async () => (await first.get('/v1/admin/backup')).rawPayload)
  await exampleTour(recorder.call, elsewhere.call)
  const examples = { ...recorder.examples, ...elsewhere.examples }
  const withoutExample = [...ROUTES.keys()].filter((id) => examples[id] === undefined)
  expect(withoutExample, 'add a call to example-tour.ts').toEqual([])
  const recorded = JSON.parse(await readFile(FILE, 'utf8')) as Examples
  if (RECORDS) return writeFile(FILE, `${JSON.stringify(kept(examples, recorded), null, 1)}\n`)
  expect(shapesOf(examples), 'PERKV_TEST_RECORD=1 npx vitest run test/http/openapi/examples.test.ts').toEqual(
    shapesOf(recorded),
  )
})
