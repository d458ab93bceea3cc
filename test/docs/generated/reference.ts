import type { Json } from '../../../src/http/openapi/schema-writer.js'
import { type Answer, areasOf, type Call, type Document } from './document.js'
import { ATOMS, type Field, fieldsOf, typeOf } from './fields.js'
import { code, linked, table, wrapped } from './markdown.js'

/** Components that many calls share, each with a section of its own. */
const COMPONENTS = ['Pair', 'LockInfo', 'Op', 'Results', 'Observer', 'Consumer', 'Lease', 'Pin']
const LINKED = {
  ...ATOMS,
  ...Object.fromEntries(COMPONENTS.map((name) => [name, `[${name}](#${name.toLowerCase()})`])),
}
const EXAMPLE_MAX = 1200

/** Every call with its parameters, fields, answers and codes. */
export function reference(document: Document): string {
  return new Reference(document).whole()
}

class Reference {
  readonly #document: Document
  /** By `operationId`. */
  readonly #anchors: ReadonlyMap<string, string>

  constructor(document: Document) {
    this.#document = document
    const calls = areasOf(document).flatMap((area) => area.calls)
    this.#anchors = new Map(calls.map((call) => [call.operationId, anchorOf(`${call.method} ${call.path}`)]))
  }

  whole(): string {
    const areas = areasOf(this.#document)
    const index = areas.flatMap(({ name, calls }) => [
      [`**${name}**`, ''],
      ...calls.map(({ operationId, method, path, summary }) => [
        `[${code(`${method} ${path}`)}](#${this.#anchors.get(operationId)})`,
        summary,
      ]),
    ])
    const sections = areas.flatMap(({ name, description, calls }) => [
      `## ${name}`,
      this.#text(description),
      ...calls.flatMap((call) => this.#call(call)),
    ])
    const components = COMPONENTS.flatMap((name) => {
      const schema = this.#document.components.schemas[name] ?? {}
      const { description } = schema
      return [
        `### ${name}`,
        ...(description === undefined ? [] : [this.#text(String(description))]),
        this.#fields(schema),
      ]
    })
    return [table(['call', ''], index), ...sections, '## Components', ...components].join('\n\n')
  }

  #call(call: Call): string[] {
    const { method, path, summary, description, parameters, requestBody, responses } = call
    const head = [`### ${code(`${method} ${path}`)}`, this.#text(`**${summary}.** ${description}`)]
    if (method === 'HEAD') return head
    const body = requestBody?.content['application/json']?.schema
    const answers = Object.entries(responses).map(([status, answer]) => [status, this.#resolved(answer)] as const)
    return [
      ...head,
      ...this.#example(call),
      ...(parameters.length === 0 ? [] : ['Parameters:', this.#parameters(parameters)]),
      ...(requestBody === undefined
        ? []
        : [this.#body(requestBody), ...(body === undefined ? [] : [this.#fields(body)])]),
      ...answers.flatMap(([status, answer]) => (/^[23]/.test(status) ? this.#answer(status, answer) : [])),
      this.#problems(answers.filter(([status]) => /^[45]/.test(status))),
    ].filter((part) => part !== '')
  }

  #resolved(answer: Answer): Answer {
    const name = answer.$ref?.split('/').at(-1)
    return (name === undefined ? undefined : this.#document.components.responses[name]) ?? answer
  }

  /** The first one, as curl sends it, with its answer. */
  #example({ 'x-codeSamples': samples, responses }: Call): string[] {
    const [sample] = samples ?? []
    if (sample === undefined) return []
    const bodies = Object.values(responses).flatMap(({ content = {} }) => Object.values(content))
    const found = bodies.flatMap(({ examples = {} }) => Object.values(examples))
    const value = found.find(({ summary }) => summary === sample.label)?.value
    const answer = value === undefined ? '' : typeof value === 'string' ? value : JSON.stringify(value)
    return [
      ['```text', `$ ${sample.source}`, ...(answer.length > EXAMPLE_MAX ? [] : [answer.trimEnd()]), '```'].join('\n'),
    ]
  }

  #parameters(parameters: Call['parameters']): string {
    const { schemas } = this.#document.components
    return this.#list(
      parameters.map(({ name, in: where, description, schema, required }) => ({
        path: name,
        type: `${where}, ${typeOf(schema, schemas)}`,
        isRequired: required === true,
        description,
      })),
    )
  }

  #body({ description, required, content }: NonNullable<Call['requestBody']>): string {
    const schema = content['application/json']?.schema
    if (schema === undefined) return this.#text(`Body: ${description ?? 'bytes.'}`)
    if (fieldsOf(schema, this.#document.components.schemas).length === 0) return 'Body: `{}`, or nothing.'
    return required ? 'Body:' : 'Body, which may be left out:'
  }

  #answer(status: string, { description, headers = {}, content = {} }: Answer): string[] {
    const shown = Object.entries(headers).map(([name, header]) => `- header ${code(name)}: ${header.description ?? ''}`)
    const bodies = Object.entries(content).flatMap(([type, { schema }]) => this.#content(type, schema))
    return [
      this.#text(`**${status}** ${description}`),
      ...(shown.length === 0 ? [] : [this.#text(shown.join('\n'))]),
      ...bodies,
    ]
  }

  #content(type: string, schema: Json | undefined): string[] {
    if (schema === undefined) return type === 'application/octet-stream' ? [`As ${code(type)}.`] : []
    if (type === 'text/event-stream')
      return (schema['anyOf'] as readonly Json[]).flatMap((event) => {
        const data = (event['properties'] as Record<string, Json>)['data'] ?? {}
        return [`As ${code(type)}, event ${code(String(event['title']))}:`, this.#fields(data)]
      })
    const fields = this.#fields(schema)
    if (type === 'application/json') return fields === '' ? [code('{}')] : [fields]
    return [`As ${code(type)}${type.endsWith('ndjson') ? ', per line' : ''}:`, fields]
  }

  #problems(answers: readonly (readonly [string, Answer])[]): string {
    const codes = answers.map(([status, { description }]) => `${status} ${description}`)
    return wrapped(`Errors: ${codes.join('; ')}.`)
  }

  /** A component stands for its fields. */
  #fields(schema: Json): string {
    const { schemas } = this.#document.components
    const fields = fieldsOf(schema, schemas, '', LINKED)
    if (fields.length > 0) return this.#list(fields)
    const type = typeOf(schema, schemas, LINKED)
    return type === 'object' ? '' : `- ${type}`
  }

  #list(fields: readonly Field[]): string {
    const items = fields.map(({ path, type, isRequired, description }) => {
      const facts = `${code(path)} (${type}${isRequired ? '' : '; optional'})`
      return `- ${facts}${description === '' ? '' : `: ${description.replaceAll(/\s*\n\s*/g, ' ')}`}`
    })
    return this.#text(items.join('\n'))
  }

  #text(text: string): string {
    return wrapped(linked(text)).replace(/\]\(#(\w+)\)/g, (link, id: string) => {
      const anchor = this.#anchors.get(id)
      return anchor === undefined ? link : `](#${anchor})`
    })
  }
}

/** Of a heading, as GitHub makes it. */
function anchorOf(heading: string): string {
  return heading
    .toLowerCase()
    .replace(/[^\w -]/g, '')
    .replaceAll(' ', '-')
}
