import { createHash } from 'node:crypto'
import { type Field, fieldsOf, resolved, typeOf } from './fields.js'
import { blockHtml, escapeHtml, inlineHtml } from './markdown.js'
import { SCRIPT } from './reference-script.js'
import { STYLE } from './reference-style.js'
import type { Json } from './schema-writer.js'

interface Media {
  readonly schema?: Json
  readonly examples?: Readonly<Record<string, { readonly summary: string; readonly value: unknown }>>
}

/** @internal */
export interface Answer {
  readonly $ref?: string
  readonly description: string
  readonly headers?: Readonly<Record<string, { readonly description?: string }>>
  readonly content?: Readonly<Record<string, Media>>
}

interface Operation {
  readonly operationId: string
  readonly tags: readonly [string]
  readonly summary: string
  readonly description: string
  readonly parameters: readonly {
    readonly name: string
    readonly in: string
    readonly description: string
    readonly schema: Json
    readonly required?: boolean
  }[]
  readonly requestBody?: {
    readonly description?: string
    readonly required: boolean
    readonly content: Readonly<Record<string, Media>>
  }
  readonly responses: Readonly<Record<string, Answer>>
  readonly 'x-codeSamples'?: readonly { readonly label: string; readonly source: string }[]
}

/** The parts of `openApiDocument` that pages read. @internal */
export interface Document {
  readonly info: { readonly version: string; readonly description: string }
  readonly tags: readonly { readonly name: string; readonly description: string }[]
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>
  readonly components: {
    readonly schemas: Readonly<Record<string, Json>>
    readonly responses: Readonly<Record<string, Answer>>
  }
}

/** @internal */
export interface Call extends Operation {
  readonly method: string
  readonly path: string
}

export function contentSecurityPolicy(): string {
  const hashOf = (text: string): string => `'sha256-${createHash('sha256').update(text).digest('base64')}'`
  const own = `style-src ${hashOf(STYLE)}; script-src ${hashOf(SCRIPT)}`
  return `default-src 'none'; ${own}; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'`
}

export function referencePage(written: Json): string {
  const document = written as unknown as Document
  const page = new Page(document)
  const areas = areasOf(document).map((area) => ({ ...area, id: areaId(area.name) }))
  const { version, description } = document.info
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>PerKV ${escapeHtml(version)}: HTTP API</title>
<link rel="icon" href="data:,">
<style>${STYLE}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the calls</a>
<header>
<h1>PerKV <small>${escapeHtml(version)}</small></h1>
<form role="search"><input id="filter" type="search" placeholder="Filter calls ( / )" aria-label="Filter calls" autocomplete="off" spellcheck="false"></form>
<a href="openapi.json">openapi.json</a>
</header>
<nav aria-label="Calls">
<details open><summary>All calls</summary>
${areas
  .map(
    ({ name, id, calls }) => `<section data-area><h2><a href="#${id}">${name}</a></h2>
<ul>${calls.map((call) => `<li data-call="${searchText(call)}"><a href="#${call.operationId}"><b class="${call.method}">${call.method}</b> ${escapeHtml(call.summary)}</a></li>`).join('\n')}</ul></section>`,
  )
  .join('\n')}
</details>
</nav>
<main id="main">
<section class="intro">${blockHtml(description)}</section>
<p id="nothing" role="status" hidden>No call matches.</p>
${areas
  .map(
    ({ name, id, description, calls }) => `<section class="area" id="${id}" data-area>
<h2>${name}</h2>
<p>${inlineHtml(description)}</p>
${calls.map((call) => page.call(call)).join('\n')}
</section>`,
  )
  .join('\n')}
${page.codes()}
</main>
<script>${SCRIPT}</script>
</body>
</html>
`
}

/** @internal */
export function areasOf({ paths, tags }: Document): { name: string; description: string; calls: Call[] }[] {
  const calls = Object.entries(paths).flatMap(([path, item]) =>
    Object.entries(item).map(([method, operation]): Call => ({ ...operation, method: method.toUpperCase(), path })),
  )
  return tags.map((tag) => ({ ...tag, calls: calls.filter((call) => call.tags[0] === tag.name) }))
}

function areaId(name: string): string {
  return `area-${name.toLowerCase().replaceAll(' ', '-')}`
}

function searchText({ method, path, operationId, summary }: Call): string {
  return escapeHtml(`${method} ${path} ${operationId} ${summary}`.toLowerCase())
}

class Page {
  readonly #document: Document

  constructor(document: Document) {
    this.#document = document
  }

  call(call: Call): string {
    const { method, path, operationId, summary, description, responses } = call
    const answers = Object.entries(responses).map(([status, answer]) => [status, this.#resolved(answer)] as const)
    const done = answers.filter(([status]) => /^[23]/.test(status))
    const failed = answers.filter(([status]) => /^[45]\d\d/.test(status))
    return `<details class="call" id="${operationId}" data-call="${searchText(call)}">
<summary><h3><b class="${method}">${method}</b> <code>${pathHtml(path)}</code> <span>${escapeHtml(summary)}</span></h3></summary>
<div class="body">
${blockHtml(description)}
${this.#samples(call)}
${this.#parameters(call)}
${this.#request(call)}
<h4>Answers</h4>
${done.map(([status, answer]) => this.#answer(status, answer)).join('\n')}
<h4>Problems</h4>
<ul class="codes">${failed
      .flatMap(([status, { description }]) =>
        [...description.matchAll(/`(\w+)`/g)].map(
          ([, code]) => `<li><a href="#code-${code}"><b>${status}</b> <code>${code}</code></a></li>`,
        ),
      )
      .join('\n')}</ul>
</div>
</details>`
  }

  codes(): string {
    const { schemas } = this.#document.components
    const problems = Object.values(schemas).filter(({ properties }) => 'code' in ((properties ?? {}) as Json))
    const known = problems.filter(({ properties }) => 'status' in (properties as Json))
    return `<section class="area problems" id="problems">
<h2>Problems</h2>
<p>Every failure has <code>title</code>, <code>status</code>, <code>code</code> and <code>detail</code>, and the fields of its code.</p>
${known
  .map((schema) => {
    const code = String(schema['title'])
    const status = (schema['properties'] as Record<string, Json>)['status']?.['const']
    const own = fieldsOf(schema, schemas).filter(
      ({ path }) => !/^(title|status|code|detail|retryable|errors)\b/.test(path),
    )
    return `<article class="problem" id="code-${code}"><h3><b>${status}</b> <code>${code}</code></h3>
${blockHtml(String(schema['description'] ?? ''))}${fieldList(own)}</article>`
  })
  .join('\n')}
</section>`
  }

  #resolved(answer: Answer): Answer {
    const name = answer.$ref?.slice(answer.$ref.lastIndexOf('/') + 1)
    return (name === undefined ? undefined : this.#document.components.responses[name]) ?? answer
  }

  #samples({ responses, ...call }: Call): string {
    return (call['x-codeSamples'] ?? [])
      .map(({ label, source }, i) => {
        const shown = `<pre tabindex="0" class="curl"><code>${escapeHtml(source)}</code></pre>${answerHtml(label, responses)}`
        if (i === 0) return `<h4>${escapeHtml(label)}</h4>\n${shown}`
        return `<details class="sample"><summary>${escapeHtml(label)}</summary>\n${shown}\n</details>`
      })
      .join('\n')
  }

  #parameters({ parameters }: Call): string {
    if (parameters.length === 0) return ''
    const { schemas } = this.#document.components
    const fields = parameters.map(({ name, in: where, description, schema, required }) => {
      return { path: name, type: `${where}, ${typeOf(schema, schemas)}`, isRequired: required === true, description }
    })
    return `<h4>Parameters</h4>\n${fieldList(fields)}`
  }

  #request({ requestBody }: Call): string {
    if (requestBody === undefined) return ''
    const { description, required, content } = requestBody
    const schema = content['application/json']?.schema
    const fields = schema === undefined ? [] : fieldsOf(schema, this.#document.components.schemas)
    const note = description ?? (required ? '' : 'May be left out.')
    const empty = fields.length === 0 && schema !== undefined ? 'No fields: <code>{}</code>, or nothing.' : ''
    return `<h4>Body</h4>\n${note === '' || empty !== '' ? '' : `<p>${inlineHtml(note)}</p>`}${empty === '' ? '' : `<p>${empty}</p>`}${fieldList(fields)}`
  }

  #answer(status: string, { description, headers = {}, content = {} }: Answer): string {
    const names = Object.entries(headers).map(
      ([name, header]) => `<dt><code>${name}</code> <i>header</i></dt><dd>${inlineHtml(header.description ?? '')}</dd>`,
    )
    const bodies = Object.entries(content).map(([type, { schema }]) => this.#body(type, schema))
    return `<p><b class="status">${status}</b> ${inlineHtml(description)}</p>
${names.length === 0 ? '' : `<dl>${names.join('\n')}</dl>`}
${bodies.join('\n')}`
  }

  #body(type: string, schema: Json | undefined): string {
    if (type === 'application/msgpack') return ''
    const { schemas } = this.#document.components
    const events = type === 'text/event-stream' && schema !== undefined ? (schema['anyOf'] as readonly Json[]) : []
    if (events.length > 0)
      return `<details class="sample"><summary><code>${type}</code></summary>${events
        .map((event) => {
          const data = (event['properties'] as Record<string, Json>)['data'] ?? {}
          return `<p><code>event: ${escapeHtml(String(event['title']))}</code></p>${fieldList(fieldsOf(data, schemas))}`
        })
        .join('\n')}</details>`
    const fields = schema === undefined ? [] : fieldsOf(schema, schemas)
    const isEmpty =
      fields.length === 0 && type === 'application/json' && resolved(schema ?? {}, schemas)['type'] !== undefined
    if (type === 'application/json') return isEmpty ? '' : fieldList(fields)
    const note = type === 'application/x-ndjson' ? ': one per line' : ''
    return fields.length === 0
      ? `<p><code>${escapeHtml(type)}</code></p>`
      : `<details class="sample"><summary><code>${escapeHtml(type)}</code>${note}</summary>${fieldList(fields)}</details>`
  }
}

function pathHtml(path: string): string {
  return escapeHtml(path).replaceAll('/', '/<wbr>').replaceAll('{', '<i>{').replaceAll('}', '}</i>')
}

function fieldList(fields: readonly Field[]): string {
  if (fields.length === 0) return ''
  const entries = fields.map(
    ({ path, type, isRequired, description }) =>
      `<dt><code>${escapeHtml(path)}</code> <i>${escapeHtml(type)}${isRequired ? '' : '; optional'}</i></dt><dd>${inlineHtml(description)}</dd>`,
  )
  return `<dl>${entries.join('\n')}</dl>`
}

/** The recorded answer to the example of this name. */
function answerHtml(label: string, responses: Operation['responses']): string {
  for (const [status, { content = {} }] of Object.entries(responses))
    for (const [type, { examples = {} }] of Object.entries(content))
      for (const { summary, value } of Object.values(examples))
        if (summary === label) {
          const text = typeof value === 'string' && !type.endsWith('json') ? value : JSON.stringify(value, null, 2)
          return `<pre tabindex="0" class="answer"><b class="status">${status}</b>\n<code>${escapeHtml(text)}</code></pre>`
        }
  return ''
}
