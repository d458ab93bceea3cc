export type Format = 'json' | 'msgpack' | 'ndjson' | 'problem' | 'events' | 'frames' | 'protobuf'

const FORMATS: ReadonlyMap<string, Format> = new Map([
  ['application/json', 'json'],
  ['application/problem+json', 'problem'],
  ['application/x-ndjson', 'ndjson'],
  ['text/event-stream', 'events'],
  ['application/msgpack', 'msgpack'],
  ['application/x-msgpack', 'msgpack'],
  ['application/vnd.msgpack', 'msgpack'],
  ['application/*', 'json'],
  ['*/*', 'json'],
])

export const CONTENT_TYPE: Readonly<Record<Format, string>> = {
  json: 'application/json; charset=utf-8',
  msgpack: 'application/msgpack',
  ndjson: 'application/x-ndjson; charset=utf-8',
  events: 'text/event-stream',
  frames: 'application/octet-stream',
  protobuf: 'application/x-protobuf',
  problem: 'application/problem+json; charset=utf-8',
}

const CHARSET = /;\s*charset\s*=\s*"?([^\s;"]*)/gi

/** @returns the charset of a Content-Type that is not UTF-8; undefined when there is none. All text is read as UTF-8. */
export function foreignCharset(contentType: string | undefined): string | undefined {
  if (contentType === undefined || !contentType.includes(';')) return undefined
  for (const [, charset = ''] of contentType.matchAll(CHARSET)) if (!/^utf-?8$/i.test(charset)) return charset
  return undefined
}

const CACHE_MAX = 256
const cache = new Map<string, readonly Format[]>()

export function acceptedFormats(accept: string | undefined): readonly Format[] {
  if (accept === undefined) return ['json']
  let formats = cache.get(accept)
  if (formats === undefined) {
    formats = parseAccept(accept)
    if (cache.size >= CACHE_MAX) cache.clear()
    cache.set(accept, formats)
  }
  return formats
}

export function wantsEvents(accept: string | undefined): boolean {
  return acceptedFormats(accept)[0] === 'events'
}

function parseAccept(accept: string): readonly Format[] {
  const ranges = accept.split(',').flatMap((range) => {
    const [type = '', ...parameters] = range.split(';').map((part) => part.trim().toLowerCase())
    const format = FORMATS.get(type)
    const q = parameters.find((parameter) => parameter.startsWith('q='))
    const weight = q === undefined ? 1 : Number(q.slice(2)) || 0
    return format === undefined || weight === 0 ? [] : [{ format, weight }]
  })
  return ranges.sort((a, b) => b.weight - a.weight).map(({ format }) => format) // Stable: ties stay in order.
}
