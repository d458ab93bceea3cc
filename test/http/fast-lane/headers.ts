import type { Random } from '../../anomalies/random.js'
import { SEED_TS } from './lane.js'
import { isLease } from './targets.js'
import { TOKENS } from './variants.js'

export type Header = readonly [name: string, value: string]

export interface HeaderRequest {
  readonly method: string
  readonly target: string
  readonly body: Buffer | undefined
  readonly isChunked: boolean
  readonly wildness: number
}

const BEARERS = [TOKENS.rw, TOKENS.rw, TOKENS.rw, TOKENS.ro, TOKENS.k, 'no-such-token-000000'].map(
  (token) => `Bearer ${token}`,
)

/** Headers that clients send, in any order. */
const COMMON: readonly (readonly [name: string, ...values: string[]])[] = [
  ['connection', 'keep-alive', 'keep-alive', 'Keep-Alive', 'close'],
  ['user-agent', 'curl/8.5.0', 'node', 'Mozilla/5.0 (X11; Linux x86_64)'],
  [
    'accept',
    '*/*',
    'application/json',
    'application/msgpack',
    'text/html, */*;q=0.8',
    'application/problem+json',
    'text/plain',
  ],
  ['accept-encoding', 'gzip, deflate, br', 'identity'],
  ['accept-language', 'en', '*'],
  ['authorization', ...BEARERS],
]
const RARER: readonly (readonly [name: string, ...values: string[]])[] = [
  [
    'if-match',
    `"${SEED_TS}"`,
    '"7"',
    '*',
    `W/"${SEED_TS}"`,
    `"7", "${SEED_TS}"`,
    `${SEED_TS}`,
    '',
    '"',
    ',',
    `"${SEED_TS}"x`,
  ],
  ['if-none-match', `"${SEED_TS}"`, '"7"', '*', `W/"${SEED_TS}"`, `"7",, "${SEED_TS}"`, 'x', '', ' * ', '"\xe9"'],
  ['idempotency-key', 'once', 'twice', '', 'k'.repeat(255), 'k'.repeat(256), '\xe9', 'a b'],
  ['origin', 'http://localhost', 'http://evil.example', 'null', ''],
  ['sec-fetch-site', 'same-origin', 'cross-site', 'none', ''],
  ['sec-fetch-mode', 'navigate', 'cors'],
  ['cookie', 'a=b; c=d'],
  ['range', 'bytes=0-3'],
  ['if-modified-since', 'Sat, 01 Jan 2000 00:00:00 GMT'],
  ['content-encoding', 'gzip', 'identity'],
  ['cache-control', 'no-cache'],
  ['te', 'trailers'],
  ['trailer', 'x-sum'],
  [
    'x-anything',
    'v',
    '',
    'v'.repeat(300),
    '\xe9',
    '\x01',
    '\x7f',
    '\0',
    '"',
    'a:b',
    'x'.repeat(900),
    'x'.repeat(31 * 1024),
    'x'.repeat(33 * 1024),
  ],
  ['x-forwarded-for', '10.0.0.1'],
  ['x-http-method-override', 'DELETE'],
  ['expect', '100-continue', '100-Continue', '200-ok', ''],
  ['upgrade', 'websocket', 'h2c', 'TLS/1.0', ''],
  ['http2-settings', 'AAMAAABkAARAAAAAAAIAAAAA'],
  ['proxy-connection', 'keep-alive', 'close'],
  ['keep-alive', 'timeout=5, max=2'],
  [
    'connection',
    'close',
    'Close',
    'keep-alive, close',
    'close, keep-alive',
    'upgrade',
    'Upgrade, HTTP2-Settings',
    '',
    'x-anything',
    'te',
    'closed',
    'keep-alive,',
    'host',
  ],
  [
    'authorization',
    `bearer ${TOKENS.rw}`,
    `BEARER   ${TOKENS.rw} `,
    'Bearer',
    'Bearer ',
    TOKENS.rw,
    'Basic YTpi',
    `Bearer ${TOKENS.rw} x`,
    '',
  ],
  [
    'accept',
    '',
    'application/*',
    '*/*;q=0',
    'application/msgpack;q=0.5, application/json',
    'x'.repeat(300),
    ';',
    ',',
    'application/json; q=',
    '\xe9',
  ],
  ['content-type', '', 'application/json', 'text/plain; charset=latin1', 'x', 'multipart/form-data'],
  ['user-agent', '', 'Mozilla/', '\xe9'],
  ['transfer-encoding', 'chunked', 'identity', 'gzip', ''],
  ['content-length', '0', '1', '5', '', 'x'],
  ['host', 'localhost', 'evil.example', ''],
  ['__proto__', 'x'],
  ['constructor', 'x'],
  ['', 'x'],
  ['x y', 'z'],
  ['x\xe9', 'z'],
  ['x(y)', 'z'],
  ['set-cookie', 'a', 'b'],
]

const HOSTS = ['localhost', '127.0.0.1:7400', 'test']
const ODD_HOSTS = [
  '',
  '[::1]',
  '[::1]:7400',
  'evil.example',
  'LOCALHOST',
  'localhost.',
  'a, b',
  'a b',
  '\xe9',
  '\0',
  'localhost:x',
  '"',
  'http://localhost',
]
const BODY_TYPES = [
  '',
  'application/octet-stream',
  'text/plain',
  'application/json',
  'application/x-www-form-urlencoded',
]
const JSON_TYPES = ['application/json', 'application/json', 'application/json', 'application/json; charset=utf-8']
const ODD_TYPES = [
  ...[
    'application/json; charset=latin1',
    'application/json;charset="UTF-8"',
    'APPLICATION/JSON',
    'application/json;',
    'application/json; a=b',
    'application/problem+json',
  ],
  ...[
    'application/msgpack',
    'text/json',
    'text/plain; charset=utf-16',
    'application/jsonx',
    'application/ json',
    'application',
    '',
    'x/y, application/json',
    'application/json\xe9',
  ],
]
const ENCODINGS = [
  'Chunked',
  'chunked, chunked',
  'gzip, chunked',
  'chunked, gzip',
  'identity',
  'xchunked',
  'chunked ',
  ' chunked',
  'chunked;q=1',
  '"chunked"',
  'chun\tked',
  '\x0bchunked',
  '',
  'chunked,',
  ',chunked',
]

export function headersOf(random: Random, request: HeaderRequest): Header[] {
  const { wildness } = request
  const headers: Header[] = COMMON.flatMap(([name, ...values]): Header[] =>
    random.chance(name === 'authorization' ? 0.8 : 0.4) ? [[name, random.pick(values)]] : [],
  )
  headers.push(...framing(random, request), ...types(random, request))
  if (!random.chance(wildness / 3))
    headers.push(['host', random.chance(wildness / 2) ? random.pick(ODD_HOSTS) : random.pick(HOSTS)])
  // A condition or two are usual too.
  if (random.chance(0.1)) headers.push(oneOf(random, RARER.slice(0, 3)))
  for (let more = 0; more < 4 && random.chance(wildness); more++) headers.push(oneOf(random, RARER))
  if (random.chance(wildness / 5)) headers.push(random.pick(headers.concat([['host', 'localhost']])))
  if (random.chance(wildness / 20)) headers.push(...Array.from({ length: 2100 }, (): Header => ['a', 'b']))
  return random.chance(0.5) ? random.shuffled(headers) : headers
}

function oneOf(random: Random, headers: readonly (readonly [string, ...string[]])[]): Header {
  const [name, ...values] = random.pick(headers)
  return [name, random.pick(values)]
}

/** How long the body is: said rightly, wrongly, twice or not at all. */
function framing(random: Random, { method, body, isChunked, wildness }: HeaderRequest): Header[] {
  const headers: Header[] = []
  if (isChunked) headers.push(['transfer-encoding', random.chance(wildness) ? random.pick(ENCODINGS) : 'chunked'])
  const isSaid = isChunked ? random.chance(wildness) : body !== undefined || (method === 'PUT' && random.chance(0.5))
  if (!isSaid) return headers
  const length = body?.length ?? 0
  headers.push(['content-length', random.chance(wildness / 2) ? random.pick(oddLengths(length)) : `${length}`])
  if (random.chance(wildness / 2))
    headers.push(['content-length', random.chance(0.5) ? `${length}` : random.pick(oddLengths(length))])
  return headers
}

function oddLengths(length: number): string[] {
  const near = [length - 1, length + 1, length + 10, 0, 16_384, 16_385, 40_000_000].map((n) => `${Math.max(0, n)}`)
  const spelled = [
    `+${length}`,
    `-${length}`,
    `0${length}`,
    `${'0'.repeat(30)}${length}`,
    `0x${length.toString(16)}`,
    `${length}.0`,
    `${length}e0`,
  ]
  const listed = [
    `${length},${length}`,
    `${length}, ${length}`,
    `${length} ${length}`,
    `${length},`,
    `,${length}`,
    `${length};x`,
    `"${length}"`,
  ]
  const wrong = [
    `${2n ** 64n + BigInt(length)}`,
    `${2n ** 32n + BigInt(length)}`,
    '9'.repeat(40),
    '',
    ' ',
    'x',
    `${length}x`,
    `${length}\0`,
    `\x0b${length}`,
    '1_0',
    'NaN',
    '-0',
  ]
  return [...near, ...spelled, ...listed, ...wrong]
}

function types(random: Random, { method, target, body, wildness }: HeaderRequest): Header[] {
  if (body === undefined) return []
  const usual = method === 'POST' || isLease(target) ? random.pick(JSON_TYPES) : random.pick(BODY_TYPES)
  const type = random.chance(wildness / 2) ? random.pick(ODD_TYPES) : usual
  return type === '' && !random.chance(wildness) ? [] : [['content-type', type]]
}
