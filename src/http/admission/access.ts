import type { FastifyInstance, FastifyRequest } from 'fastify'
import { Grant } from '../../access/grant.js'
import { KvError } from '../../errors/kv-error.js'

/**
 * What a route asks of its caller: nothing (`open`), any token (`read`), one that may write (`write`), one that is not bound
 * to prefixes (`read_all`), or both (`admin`). Which keys a request names is checked where they are decoded.
 */
export type Access = 'open' | 'read' | 'write' | 'read_all' | 'admin'

/** What the bearer of a token may do; undefined: it is none of ours. */
export type Authenticate = (token: string) => Grant | undefined

declare module 'fastify' {
  interface FastifyContextConfig {
    /** Absent: `admin`, so that what was forgotten is closed. */
    access?: Access
  }
  interface FastifyRequest {
    grant: Grant
  }
}

const BEARER = /^bearer +([^ ]+) *$/i

/**
 * Before a body is read: who asks, and may they call this at all?
 * @param authenticate undefined: everybody may do everything.
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
  // Whoever may not come in does not learn which routes there are.
  const access = request.is404 ? 'read' : (request.routeOptions.config.access ?? 'admin')
  if (access === 'open') return NOTHING
  const token = BEARER.exec(request.headers.authorization ?? '')?.[1]
  const grant = token === undefined ? undefined : authenticate(token)
  if (grant === undefined)
    throw new KvError('unauthorized', 'this needs a token that the server knows: Authorization: Bearer TOKEN', {})
  if (access === 'write' || access === 'admin') grant.requireWrite()
  if (access === 'read_all' || access === 'admin') grant.requireEveryKey()
  return grant
}

/** What open routes get, whoever asks. */
const NOTHING = new Grant({ mayWrite: false, prefixes: [] })
