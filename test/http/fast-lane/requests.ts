import type { Random } from '../../anomalies/random.js'
import { bodyOf, chunked } from './bodies.js'
import { type Header, headersOf } from './headers.js'
import { latin1 } from './latin1.js'
import { targetOf } from './targets.js'

const METHODS = ['GET', 'GET', 'GET', 'PUT', 'PUT', 'PUT', 'DELETE', 'POST', 'POST', 'POST'] as const
const OTHER_METHODS = [
  ...[
    'HEAD',
    'OPTIONS',
    'PATCH',
    'TRACE',
    'CONNECT',
    'get',
    'Put',
    'post',
    'FOO',
    'M-SEARCH',
    'PROPFIND',
    'PRI',
    'SOURCE',
  ],
  ...['', 'GE', 'GETT', 'G\0T', 'P UT', '"GET"', 'PUT\t', ' GET', '\tGET', 'QUERY', 'LINK', 'GET/'],
]
const VERSIONS = [
  ...[
    'HTTP/1.0',
    'HTTP/1.0',
    'HTTP/0.9',
    'HTTP/1.2',
    'HTTP/1.9',
    'HTTP/2.0',
    'HTTP/3.0',
    'http/1.1',
    'HTTP/1.10',
    'HTTP/11',
    'HTTP/1',
  ],
  ...[
    'HTTP/ 1.1',
    'HTTP/1.1 ',
    'HTTP/1.1\t',
    ' HTTP/1.1',
    'HTTPS/1.1',
    'ICE/1.0',
    'RTSP/1.0',
    'HTTP/1,1',
    'HTTP /1.1',
    '',
    'HTTP',
    'HTTP/1.1 x',
  ],
]
const LINE_ENDS = ['\n', '\r', '\r\r\n', '\n\r', '\r\n ', ' \r\n', '\0\r\n', '\r\n\t', '\x0b\r\n', '\x85', '\r\n\r']
const SEPARATORS = ['  ', '\t', '\r', '\x0b', '', '\n', '\xa0', ' \t ']

/**
 * One request with the keys of one slot.
 * @param wildness the chance of each oddity. 0: a request that clients send.
 */
export function requestOf(random: Random, slot: number, wildness: number): Buffer {
  const odd = <T>(usual: T, others: readonly T[]): T => (random.chance(wildness / 2) ? random.pick(others) : usual)
  const method = odd<string>(random.pick(METHODS), OTHER_METHODS)
  const target = targetOf(random, method, slot, wildness)
  const space = odd(' ', SEPARATORS)
  const line = `${method}${space}${target}${odd(' ', SEPARATORS)}${odd('HTTP/1.1', VERSIONS)}`
  const body = bodyOf(random, { method, target }, slot, wildness)
  const isChunked = body !== undefined && random.chance(wildness / 2)
  const headers = headersOf(random, { method, target, body, isChunked, wildness })
  const usualEnd = random.chance(wildness / 4) ? '\n' : '\r\n'
  const lineEnd = (): string => (random.chance(wildness / 20) ? random.pick(LINE_ENDS) : usualEnd)
  const head = [line, ...headers.map((header) => spelled(random, header, wildness))]
  const text = `${head.map((line) => line + lineEnd()).join('')}${lineEnd()}`
  const content = body === undefined ? Buffer.of() : isChunked ? chunked(random, body, wildness) : body
  return Buffer.concat([latin1(text), content])
}

const GAPS = ['', '  ', '\t', ' \t ', ' '.repeat(20)]
const BAD_GAPS = ['\r\n ', '\r\n\t', '\r ', '\n ', '\0', '\x0b', '\xa0', '\x0c']
const BAD_COLONS = [' :', '\t:', '', '::', ';', '\0:', ':\r', '=']

function spelled(random: Random, [name, value]: Header, wildness: number): string {
  const written = random.chance(0.3) ? recased(random, name) : name
  const colon = random.chance(wildness / 15) ? random.pick(BAD_COLONS) : ':'
  const gap = (usual: string): string => {
    if (random.chance(wildness / 20)) return random.pick(BAD_GAPS)
    return random.chance(0.05 + wildness / 5) ? random.pick(GAPS) : usual
  }
  return `${written}${colon}${gap(' ')}${value}${gap('')}`
}

function recased(random: Random, name: string): string {
  switch (random.below(3)) {
    case 0:
      return name.toUpperCase()
    case 1:
      return name.replace(/\b\w/g, (letter) => letter.toUpperCase())
    default:
      return [...name].map((c) => (random.chance(0.5) ? c.toUpperCase() : c)).join('')
  }
}
