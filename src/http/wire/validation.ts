import type { FastifyInstance, FastifyRequest, FastifyServerOptions } from 'fastify'
import type { Limits } from '../../limits.js'
import type { Store } from '../../store/store.js'
import { preconditionsOf } from './etag.js'
import { queryExpiry } from './expiry.js'
import { idempotencyHeader } from './idempotency-key.js'
import { KEY_ROUTE, requestKey } from './key-url.js'
import { lockWaitMs, type RawQuery, timeoutMs, unknownParameter } from './query.js'
import type { Schema } from './schemas/schema.js'
import { validatorOf } from './validator.js'
import { writtenTimestamps } from './written-timestamp.js'

declare module 'fastify' {
  interface FastifyContextConfig {
    /** Query parameters of the route; others are refused. */
    query?: readonly string[]
    /** The query parameters that may be given more than once. */
    queryLists?: readonly string[]
  }
}

/** Without these options fastify loads Ajv and a compiler of serializers, which take a fifth of the time to start. */
export const NO_COMPILERS: FastifyServerOptions = {
  schemaController: { compilersFactory: { buildValidator: unused, buildSerializer: unused } },
}

function unused(): never {
  throw new Error('wire/validator.ts validates requests, and wire/encode-answer.ts encodes answers')
}

const NO_PARAMETERS: readonly string[] = []

/**
 * Validates bodies by the schemas of their routes, and refuses unknown query parameters, which no schema describes. A POST
 * without a body gets an empty object.
 */
export function validateRequests(app: FastifyInstance, limits: Limits, store: Pick<Store, 'now'>): void {
  const rules = { limits, written: writtenTimestamps(store) }
  app.setValidatorCompiler<Schema>(({ schema, httpPart = 'body' }) => {
    const validate = validatorOf(schema, httpPart, rules)
    return (value) => {
      const error = validate(value)
      if (error === undefined) return true
      return error instanceof Promise ? thrown(error) : { error }
    }
  })
  // Before the client is asked for the body.
  app.addHook('onRequest', (request, _reply, done) => {
    const { query = NO_PARAMETERS, queryLists } = request.routeOptions.config
    const unknown = unknownParameter(request.query as RawQuery, query, queryLists)
    done(unknown ?? (request.raw.askForBody && refusedByHead(request, limits)))
  })
  app.addHook('preValidation', (request, _reply, done) => {
    if (request.body === undefined && request.method === 'POST') request.body = {}
    done()
  })
}

/** The error that handlers would return for the head. A client that waits to be asked for its body gets it before. */
function refusedByHead(request: FastifyRequest, limits: Limits): Error | undefined {
  const query = request.query as RawQuery
  try {
    if (request.routeOptions.url === KEY_ROUTE) {
      requestKey(request, limits)
      queryExpiry(query)
    }
    lockWaitMs(query)
    timeoutMs(query)
    preconditionsOf(request.headers)
    idempotencyHeader(request)
    return undefined
  } catch (error) {
    return error as Error
  }
}

/** fastify takes the error of a promise from its rejection. The brand is one of its types for linters. */
function thrown(error: Promise<Error | undefined>): SafePromise {
  return error.then((found) => {
    if (found !== undefined) throw found
  }) as SafePromise
}

type SafePromise = Promise<void> & { readonly __linterBrands: 'SafePromiseLike' }
