import { Agent } from 'node:http'
import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { rawRequest, rawText, sendTo, startServer, type TestServer } from '../support.js'

/** Requests with targets as they are: `inject`, `fetch` and curl rewrite some of them. */

const RW = 'rw-token-0123456789'
const APP = 'app-token-0123456789'

let server: TestServer
let port: number
const agent = new Agent({ keepAlive: true })
beforeAll(async () => {
  server = await startServer({ tokens: `rw ${RW}\nrw ${APP} prefix=app/\n` })
  port = await server.listen()
})
afterAll(async () => {
  agent.destroy()
  await server.app.close()
  await server.database.close()
})

const send = (method: string, path: string, token = RW, body?: string) =>
  sendTo({ port, agent }, method, path, { authorization: `Bearer ${token}`, 'content-type': 'application/json' }, body)

/** All keys, as hex. */
async function storedKeys(): Promise<string[]> {
  const { pairs } = await server.store.scan({ ts: await server.store.tso(1), limit: 100 })
  return pairs.map(({ key }) => Buffer.from(key).toString('hex'))
}

/** RFC 3986 by the letter, a second time: the key that a target names, as hex; undefined: it names none. */
function keyNamedBy(target: string, txn: string): string | undefined {
  const { path } = /^(?:https?:\/\/[^/?#]*)?(?<path>[^?#]*)(?:\?[^#]*)?$/i.exec(target)?.groups ?? {}
  if (path === undefined || /%(?![0-9a-f]{2})/i.test(path)) return undefined
  const segments = path.split('/')
  const isRoute = (names: readonly string[]) =>
    segments.length > names.length && names.every((name, i) => decoded(segments[i] ?? '').toString('latin1') === name)
  const routes = [
    ['', 'v1', 'kv'],
    ['', 'v1', 'txn', txn, 'kv'],
  ]
  const route = routes.find(isRoute)
  return route && decoded(segments.slice(route.length).join('/')).toString('hex')
}

function decoded(text: string): Buffer {
  const bytes: number[] = []
  for (let at = 0; at < text.length; at++) {
    if (text[at] !== '%') bytes.push(text.charCodeAt(at))
    else {
      bytes.push(Number.parseInt(text.slice(at + 1, at + 3), 16))
      at += 2
    }
  }
  return Buffer.from(bytes)
}

const escaped = (byte: number, isUpper = true): string => {
  const hex = byte.toString(16).padStart(2, '0')
  return `%${isUpper ? hex.toUpperCase() : hex}`
}
const UNRESERVED = /[A-Za-z0-9\-._~]/
/** Others than these mean something in a URL, or may not stand there. */
const RAW_IN_KEYS = /[A-Za-z0-9\-._~/!$&'()*+,;=:@]/

/** The same text, some of its characters escaped. */
function spelled(text: Buffer, mayStandRaw: RegExp): fc.Arbitrary<string> {
  return fc
    .array(fc.constantFrom('raw', 'raw', 'upper', 'lower'), { minLength: text.length, maxLength: text.length })
    .map((ways) =>
      [...text]
        .map((byte, i) => {
          const character = String.fromCharCode(byte)
          return ways[i] === 'raw' && mayStandRaw.test(character) ? character : escaped(byte, ways[i] !== 'lower')
        })
        .join(''),
    )
}

const key = fc.oneof(
  fc.uint8Array({ minLength: 1, maxLength: 6 }).map((bytes) => Buffer.from(bytes)),
  fc
    .constantFrom('a', 'app/a', 'app/', '..', '.', 'a/../b', '/', '//', 'v1/kv/a', '%6b', '%', 'kv', 'a?b', 'a#b', ';')
    .map((text) => Buffer.from(text)),
)
const form = fc.constantFrom('', '', '', 'http://127.0.0.1', 'HTTP://elsewhere:80', 'https://a')
const query = fc.constantFrom('', '', '?', '?lock_wait_ms=5')

interface Spelling {
  readonly path: string
  readonly key: string
}

const PIECES = [
  ...[
    '/',
    '/',
    '/v1',
    '/kv',
    '/kv/',
    '/v1/kv/',
    '/txn',
    '/TXN/kv/',
    '/TXN/kv/',
    'a',
    'app/',
    'v1',
    'kv',
    'V1',
    '%6b',
    '%6B',
  ],
  ...[
    '%2F',
    '%2f',
    '%25',
    '%256b',
    '%',
    '%6',
    '%zz',
    '%00',
    '%FF',
    '.',
    '..',
    '%2e',
    '%2E%2E',
    '#',
    '?',
    '?x=/v1/kv/b',
  ],
  ...[';', ':', '@', '\\', '*', 'http://a', 'http:', '//a'],
]

describe('any spelling of a URL', () => {
  let txn = ''
  const begin = async () => {
    const begun = await send('POST', '/v1/txn/begin', RW, '{}')
    txn = (JSON.parse(begun.body) as { txn: string }).txn
  }
  const end = () => send('POST', `/v1/txn/${txn}/commit`, RW, '{}')
  const clear = () => server.store.deleteRange({ start: Buffer.from([0]), end: Buffer.alloc(9, 0xff) })

  test('names its key, however letters of the route and the key are escaped', { tags: ['long'] }, async () => {
    let written = 0
    const spelling = fc.tuple(key, fc.boolean()).chain(([bytes, inTxn]) => {
      const route = inTxn ? ['v1', 'txn', 'TXN', 'kv'] : ['v1', 'kv']
      const parts = route.map((part) => (part === 'TXN' ? fc.constant(part) : spelled(Buffer.from(part), UNRESERVED)))
      const all = fc.tuple(form, fc.tuple(...parts), spelled(bytes, RAW_IN_KEYS), query)
      return all.map(([start, names, name, rest]): Spelling => {
        return { path: `${start}/${names.join('/')}/${name}${rest}`, key: bytes.toString('hex') }
      })
    })
    const property = fc.asyncProperty(spelling, async ({ path, key }) => {
      await begin()
      const target = path.replace('/TXN/', `/${txn}/`)
      const answer = await send('PUT', target, RW, 'v')
      await end()
      const keys = await storedKeys()
      await clear()
      expect([answer.status, keys], `PUT ${target}: ${answer.body}`).toEqual([200, [key]])
      expect(keyNamedBy(target, txn)).toBe(key)
      written++
    })
    await fc.assert(property, { numRuns: 150, examples: [[{ path: '/v1/%6bv/foo', key: '666f6f' }]] })
    expect(written).toBeGreaterThan(100)
  })

  test('writes the key that RFC 3986 reads in it, or is refused and writes none', { tags: ['long'] }, async () => {
    const target = fc.oneof(
      fc.array(fc.constantFrom(...PIECES), { minLength: 1, maxLength: 7 }).map((pieces) => pieces.join('')),
      fc.array(fc.constantFrom(...PIECES), { minLength: 1, maxLength: 5 }).map((pieces) => `/v1/${pieces.join('')}`),
      fc.array(fc.constantFrom(...PIECES), { minLength: 1, maxLength: 4 }).map((pieces) => `/v1/kv/${pieces.join('')}`),
    )
    const property = fc.asyncProperty(target, fc.boolean(), async (pieces, isApp) => {
      await begin()
      const path = pieces.replaceAll('/TXN/', `/txn/${txn}/`)
      const answer = await send('PUT', path, isApp ? APP : RW, 'v')
      await end()
      const keys = await storedKeys()
      await clear()
      const what = `PUT ${path}: ${answer.status} ${answer.body}`
      expect([200, 400, 403, 404, 405], what).toContain(answer.status)
      expect(keys, what).toEqual(answer.status === 200 ? [keyNamedBy(path, txn)] : [])
      if (isApp) for (const written of keys) expect(written, what).toMatch(/^6170702f/)
    })
    await fc.assert(property, {
      numRuns: 400,
      examples: [
        ['/v1/%6bv/foo', false],
        ['/v1/%6bv/%61pp/x', true],
        ['/v1/kv/a#b', false],
        ['/v1/%6bv/%2%35', false],
      ],
    })
  })
})

describe('targets that name no key', () => {
  test.each([
    ['PUT', '/v1%2Fkv/foo', 404],
    ['PUT', '/v1/kv%2Ffoo', 404],
    ['PUT', '/v1%2fkv%2ffoo', 404],
    ['PUT', '//v1/kv/foo', 404],
    ['PUT', '/v1//kv/foo', 404],
    ['PUT', '/V1/kv/foo', 404],
    ['PUT', '/v1/KV/foo', 404],
    ['PUT', '/v1/x/../kv/foo', 404],
    ['PUT', '/./v1/kv/foo', 404],
    ['PUT', '/v1/k%76', 405],
    ['PUT', '/v1/kv?/foo', 405],
    ['PUT', '/v1/kv#/foo', 400],
    ['PUT', '/v1/kv/foo#bar', 400],
    ['PUT', '/v1/kv/foo?lock_wait_ms=1#bar', 400],
    ['GET', '/v1/kv?prefix=a#b', 400],
    ['PUT', '/v1\\kv\\foo', 404],
    ['PUT', 'ftp://host/v1/kv/foo', 404],
    ['PUT', 'http:/v1/kv/foo', 400],
    ['PUT', '*', 404],
    ['OPTIONS', '*', 404],
    ['PUT', 'http://host', 404],
    ['PUT', 'http://host?/v1/kv/foo', 404],
    ['PUT', '/v1/%256bv/foo', 404],
    ['POST', '/v1/%6bv/batch_get', 400], // It is found, and has no body.
    ['PUT', '/v1/%6bv/', 400],
    ['PUT', '/v1/%6bv/%zz', 400],
    ['PUT', '/v1/txn/nobody/%6bv/foo', 404],
    ['PUT', '/v1/txn//kv/foo', 404],
    ['PUT', '/v1/txn/a%2Fkv%2Fb/kv/foo', 404],
  ])('%s %s is %i', async (method, target, status) => {
    const answer = await send(method, target, RW, method === 'PUT' ? 'v' : undefined)
    expect([answer.status, await storedKeys()], answer.body).toEqual([status, []])
  })

  test('characters that no URL has', async () => {
    for (const target of ['/v1/kv/\u00e9', '/v1/kv/a b', '/v1/kv/a\tb', 'host:80']) {
      const answer = await rawRequest(port, Buffer.from(rawText(`PUT ${target}`, [`Authorization: Bearer ${RW}`], 'v')))
      expect([answer.status, await storedKeys()], target).toEqual([400, []])
    }
  })
})
