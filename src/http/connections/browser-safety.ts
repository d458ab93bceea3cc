import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { invalid, KvError } from '../../errors/kv-error.js'
import { isLoopback } from './loopback.js'

/**
 * On every answer, whatever it is. What is stored here may be anybody's bytes: a browser must neither guess at their type, nor
 * run or show them as a page of this origin, nor hand them to a page of another, nor keep them. There are no CORS headers.
 */
const SAFE_HEADERS = {
  'x-content-type-options': 'nosniff',
  'content-security-policy': "default-src 'none'; frame-ancestors 'none'; sandbox",
  'x-frame-options': 'DENY',
  'cross-origin-resource-policy': 'same-origin',
  'referrer-policy': 'no-referrer',
  'cache-control': 'no-store',
} as const

/** The same for answers that are written to a socket as they are. */
export const SAFE_HEADER_LINES = Object.entries(SAFE_HEADERS)
  .map(([name, value]) => `${name}: ${value}\r\n`)
  .join('')

export function addSafeHeaders(reply: FastifyReply): void {
  reply.headers(SAFE_HEADERS)
}

/** Where nobody has to show a token, a page of the web must not be able to use its reader's browser as one. */
export interface BrowserGuard {
  /** A browser's requests under another name than one of this machine are refused: a name of the web's may lead here as well. */
  readonly loopbackNamesOnly: boolean
}

export function guardFromBrowsers(app: FastifyInstance, guard: BrowserGuard | undefined): void {
  app.addHook('onRequest', (request, reply, done) => {
    addSafeHeaders(reply)
    done(withoutHost(request) ?? (guard && refusal(request, guard)))
  })
}

/** RFC 9112, section 3.2. */
function withoutHost({ headers, raw }: FastifyRequest): KvError<'invalid_argument'> | undefined {
  if (headers.host !== undefined || raw.httpVersion === '1.0') return undefined
  return invalid('headers', 'the request has no Host header')
}

function refusal({ headers, method }: FastifyRequest, guard: BrowserGuard): KvError<'forbidden'> | undefined {
  const { host, origin, 'sec-fetch-site': site, 'sec-fetch-mode': mode } = headers
  if (guard.loopbackNamesOnly && host !== undefined && isFromBrowser(headers) && !isLoopbackName(host))
    return new KvError('forbidden', 'a server without tokens is reached as localhost, 127.0.0.1 or [::1] only', {})
  if (site !== undefined) {
    if (site === 'same-origin' || site === 'none') return undefined
    if (mode === 'navigate' && method === 'GET') return undefined // A link that somebody follows.
  } else if (origin === undefined || sameHost(origin, host)) return undefined
  return new KvError('forbidden', 'a server without tokens answers no requests of pages of other sites', {})
}

/** Programs may call the server what they like. A page can change both of these, and leave neither out. */
function isFromBrowser(headers: FastifyRequest['headers']): boolean {
  return headers['accept-language'] !== undefined || headers['user-agent']?.startsWith('Mozilla/') === true
}

function isLoopbackName(host: string): boolean {
  return isLoopback(host.replace(/:\d*$/, '').replace(/^\[(.*)\]$/, '$1'))
}

/** Older browsers say `Origin` alone; a proxy in front is to pass on `Host`. */
function sameHost(origin: string, host: string | undefined): boolean {
  return host !== undefined && origin.replace(/^https?:\/\//, '').toLowerCase() === host.toLowerCase()
}
