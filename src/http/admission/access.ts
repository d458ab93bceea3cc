import type { FastifyInstance, FastifyRequest } from 'fastify'
import { Grant } from '../../access/grant.js'
import { KvError } from '../../errors/kv-error.js'

/**
 * The token that a route needs: none (`open`), any (`read`), one that may write (`write`), one without prefixes (`read_all`),
 * or one that may write and has no prefixes (`admin`). Keys are checked against prefixes where they are decoded.
 */
export type Access = 'open' | 'read' | 'write' | 'read_all' | 'admin'

export type Authenticate = (token: string) => Grant | undefined

declare module 'fastify' {
  interface FastifyContextConfig {
    /** Default: `admin`, so that a route that forgets to declare it is closed. */
    access?: Access
  }
  interface FastifyRequest {
    grant: Grant
  }
}

const BEARER = /^bearer +([^ ]+) *$/i

/**
 * Checks the token of each request before its body is read, and sets `request.grant`.
 * @param authenticate undefined: every caller may do everything.
 */
export function guardRoutes(app: FastifyInstance, authenticate: Authenticate | undefined): void {
  app.decorateRequest('grant')
  app.addHook('onRequest', (request, _reply, done) => {
    if (authenticate === undefined) {
      request.grant = Grant.EVERYTHING
      return done()
    }
    try {
      request.grant = grantOf(request, authenticate)
    } catch (error) {
      return done(error as Error)
    }
    done()
  })
}

function grantOf(request: FastifyRequest, authenticate: Authenticate): Grant {
  // A 404 needs a token too, so that callers without one do not learn which routes exist.
  const access = request.is404 ? 'read' : (request.routeOptions.config.access ?? 'admin')
  if (access === 'open') return NOTHING
  const grant = grantOfToken(tokenOf(request), authenticate)
  if (access === 'write' || access === 'admin') grant.requireWrite()
  if (access === 'read_all' || access === 'admin') grant.requireEveryKey()
  return grant
}

/** Who is behind a request: see `Shares`. Where tokens are needed, those without one are told apart by their addresses. */
export function callerOf({
  grant,
  ip,
}: {
  readonly grant: Grant | undefined
  readonly ip: string
}): string | undefined {
  return grant === NOTHING ? ip : grant?.identity // Malformed URLs have no grant.
}

export function tokenOf(request: FastifyRequest): string | undefined {
  return bearerToken(request.headers.authorization)
}

/** @throws KvError `unauthorized` */
export function grantOfToken(token: string | undefined, authenticate: Authenticate): Grant {
  const grant = token === undefined ? undefined : authenticate(token)
  if (grant !== undefined) return grant
  throw new KvError('unauthorized', 'the request needs a token that the server knows: Authorization: Bearer TOKEN', {})
}

export function bearerToken(authorization: string | undefined): string | undefined {
  return BEARER.exec(authorization ?? '')?.[1]
}

const NOTHING = new Grant({ mayWrite: false, prefixes: [] })
