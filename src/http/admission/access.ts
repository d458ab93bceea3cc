import type { FastifyInstance, FastifyRequest } from 'fastify'
import { Grant } from '../../access/grant.js'
import { grantOfToken, type TokensInForce } from './tokens-in-force.js'

/**
 * The token that a route needs: none (`open`), any (`read`), one that may write (`write`), one without prefixes (`read_all`),
 * or one that may write and has no prefixes (`admin`). Keys are checked against prefixes where they are decoded.
 */
export type Access = 'open' | 'read' | 'write' | 'read_all' | 'admin'

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

export function guardRoutes(app: FastifyInstance, tokens: TokensInForce | undefined): void {
  app.decorateRequest('grant')
  app.addHook('onRequest', (request, _reply, done) => {
    if (tokens === undefined) {
      request.grant = Grant.EVERYTHING
      return done()
    }
    try {
      request.grant = grantOf(request, tokens)
    } catch (error) {
      return done(error as Error)
    }
    done()
  })
}

function grantOf(request: FastifyRequest, tokens: TokensInForce): Grant {
  // A 404 needs a token too, so that callers without one do not learn which routes exist.
  const access = request.is404 ? 'read' : (request.routeOptions.config.access ?? 'admin')
  if (access === 'open') return NOTHING
  const token = bearerToken(request.headers.authorization)
  const grant = grantOfToken(token, tokens.authenticate)
  if (access === 'write' || access === 'admin') grant.requireWrite()
  if (access === 'read_all' || access === 'admin') grant.requireEveryKey()
  if (token !== undefined) request.raw.letIn = tokens.letIn(token, grant)
  return grant
}

/** The identity of a caller for `Shares`. Where tokens are needed, callers without one are distinguished by address. */
export function callerOf({
  grant,
  ip,
}: {
  readonly grant: Grant | undefined
  readonly ip: string
}): string | undefined {
  return grant === NOTHING ? ip : grant?.identity // Requests with malformed URLs have no grant.
}

export function bearerToken(authorization: string | undefined): string | undefined {
  return BEARER.exec(authorization ?? '')?.[1]
}

const NOTHING = new Grant({ mayWrite: false, prefixes: [] })
