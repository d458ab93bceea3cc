import type { Json } from './schema-writer.js'

/** A request that was sent to a server, and its answer: test/http/openapi/examples.test.ts records and repeats them. */
export interface Example {
  readonly name: string
  readonly path?: Readonly<Record<string, string>>
  readonly query?: Readonly<Record<string, string>>
  readonly headers?: Readonly<Record<string, string>>
  /** JSON, or the text of raw bytes. */
  readonly body?: unknown
  /** A file whose bytes are the body. */
  readonly file?: string
  readonly answer: {
    readonly status: number
    /** Without parameters; absent: the answer has no body. */
    readonly type?: string
    readonly headers?: Readonly<Record<string, string>>
    /** JSON, or the text of other media types. */
    readonly body?: unknown
  }
}

export type Examples = Readonly<Record<string, readonly Example[]>>

/** @param path with parameters as `{key}`. @internal */
export function targetOf(path: string, example: Pick<Example, 'path' | 'query'>): string {
  const filled = path.replace(/\{(\w+)\}/g, (_, name: string) => escaped(example.path?.[name] ?? name))
  const query = Object.entries(example.query ?? {}).map(([name, value]) =>
    value === '' ? name : `${name}=${encodeURIComponent(value).replaceAll('%2F', '/')}`,
  )
  return query.length === 0 ? filled : `${filled}?${query.join('&')}`
}

function escaped(segment: string): string {
  return encodeURIComponent(segment).replaceAll('%2F', '/')
}

export function curlOf(method: string, path: string, example: Example): string {
  const target = targetOf(path, example)
  const url = `localhost:7400${target}`
  const words = ['curl']
  const { headers = {}, body, file, answer } = example
  const isJson = typeof body === 'object'
  if (answer.type === 'text/event-stream') words.push('-N')
  if (method === 'HEAD') words.push('-I')
  else if (method !== 'GET' && !(method === 'POST' && isJson)) words.push('-X', method)
  for (const [name, value] of Object.entries(headers)) words.push('-H', quoted(`${name}: ${value}`))
  if (isJson) words.push('--json', quoted(JSON.stringify(body as Json)))
  else if (typeof body === 'string') words.push('-d', quoted(body))
  if (file !== undefined) words.push('-T', quoted(file))
  if (answer.type === 'application/octet-stream' && answer.body === undefined) words.push('-OJ')
  words.push(quoted(url))
  return words.join(' ')
}

function quoted(word: string): string {
  return /^[\w.:/%@=+-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`
}
