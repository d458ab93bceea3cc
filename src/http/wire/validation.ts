import type { FastifyInstance, FastifyServerOptions } from 'fastify'
import type { Limits } from '../../limits.js'
import type { Store } from '../../store/store.js'
import { atMostKeyword } from './at-most.js'
import { isWireBytes } from './bytes.js'
import { compileLate } from './late-compilation.js'
import { type RawQuery, unknownParameter } from './query.js'
import { writtenTimestampKeyword } from './written-timestamp.js'

declare module 'fastify' {
  interface FastifyContextConfig {
    /** Query parameters of the route; others are refused. */
    query?: readonly string[]
  }
}

/** Strict validation, with the keywords that schemas/values.ts lists. */
export function ajvOptions(limits: Limits, store: Pick<Store, 'now'>): NonNullable<FastifyServerOptions['ajv']> {
  return {
    // By default fastify lets ajv drop unknown fields and turn "12" into 12.
    customOptions: { removeAdditional: false, coerceTypes: false, useDefaults: false, allErrors: false },
    plugins: [
      (ajv) => {
        // The decoder makes the bytes, and checks their limits.
        const validate = (_kind: unknown, value: unknown): boolean => isWireBytes(value)
        ajv.addKeyword({ keyword: 'bytes', schemaType: 'string', errors: false, validate })
        ajv.addKeyword({ keyword: 'zeroIsAbsent', schemaType: 'boolean' })
        ajv.addKeyword({ keyword: 'distinct', schemaType: 'string' }) // The decoder checks it.
        ajv.addKeyword(atMostKeyword(limits))
        ajv.addKeyword(writtenTimestampKeyword({ now: () => store.now() }))
        compileLate(ajv)
        return ajv
      },
    ],
  }
}

const NO_PARAMETERS: readonly string[] = []

/** Refuses unknown query parameters, which no schema describes. A POST without a body gets an empty object. */
export function validateRequests(app: FastifyInstance): void {
  app.addHook('preValidation', (request, _reply, done) => {
    if (request.body === undefined && request.method === 'POST') request.body = {}
    done(unknownParameter(request.query as RawQuery, request.routeOptions.config.query ?? NO_PARAMETERS))
  })
}
