import type { IncomingHttpHeaders } from 'node:http'
import type { FastifyInstance, FastifyReply } from 'fastify'
import { KvError } from '../../errors/kv-error.js'
import { isLoopback } from './loopback.js'
import { headError } from './request-head.js'

/**
 * Headers of every answer. Stored values may come from anybody, so a browser must not guess their type, run or show them as a
 * page of this origin, give them to pages of other origins, or cache them. No CORS headers are sent.
 */
export const SAFE_HEADERS = {
  'x-content-type-options': 'nosniff',
  'content-security-policy': "default-src 'none'; frame-ancestors 'none'; sandbox",
  'x-frame-options': 'DENY',
  'cross-origin-resource-policy': 'same-origin',
  'referrer-policy': 'no-referrer',
  'cache-control': 'no-store',
} as const

export const SAFE_HEADER_LINES = Object.entries(SAFE_HEADERS)
  .map(([name, value]) => `${name}: ${value}\r\n`)
  .join('')

export function addSafeHeaders(reply: FastifyReply): void {
  reply.headers(SAFE_HEADERS)
}

/** Keeps web pages from reaching a server without tokens through the browsers of people who can reach it. */
export interface BrowserGuard {
  /** Browsers may name the server only as a loopback host: a public DNS name may resolve to this machine (DNS rebinding). */
  readonly loopbackNamesOnly: boolean
}

export function guardFromBrowsers(app: FastifyInstance, guard: BrowserGuard | undefined): void {
  app.addHook('onRequest', (request, reply, done) => {
    addSafeHeaders(reply)
    done(headError(request.raw) ?? (guard && refusal(request.headers, request.method, guard)))
  })
}

export function refusal(
  headers: IncomingHttpHeaders,
  method: string,
  guard: BrowserGuard,
): KvError<'forbidden'> | undefined {
  const { host, origin, 'sec-fetch-site': site, 'sec-fetch-mode': mode } = headers
  if (guard.loopbackNamesOnly && host !== undefined && isFromBrowser(headers) && !isLoopbackName(host))
    return new KvError('forbidden', 'browsers must reach a server without tokens as localhost, 127.0.0.1 or [::1]', {})
  if (site !== undefined) {
    if (site === 'same-origin' || site === 'none') return undefined
    if (mode === 'navigate' && method === 'GET') return undefined // The user followed a link.
  } else if (origin === undefined || sameHost(origin, host)) return undefined
  return new KvError('forbidden', 'a server without tokens refuses requests from pages of other sites', {})
}

/** Only browsers are restricted to loopback names. A page can change both headers, but can omit neither. */
function isFromBrowser(headers: IncomingHttpHeaders): boolean {
  return headers['accept-language'] !== undefined || headers['user-agent']?.startsWith('Mozilla/') === true
}

function isLoopbackName(host: string): boolean {
  return isLoopback(host.replace(/:\d*$/, '').replace(/^\[(.*)\]$/, '$1'))
}

/** For older browsers, which send `Origin` but no `Sec-Fetch-Site`. A proxy in front must pass `Host` on. */
function sameHost(origin: string, host: string | undefined): boolean {
  return host !== undefined && origin.replace(/^https?:\/\//, '').toLowerCase() === host.toLowerCase()
}
