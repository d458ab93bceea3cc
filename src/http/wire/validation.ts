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
    /** Query parameters that the route knows; others are refused. */
    query?: readonly string[]
  }
}

/** How ajv checks bodies: strictly, and with the keywords of schemas.ts. */
export function ajvOptions(limits: Limits, store: Pick<Store, 'now'>): NonNullable<FastifyServerOptions['ajv']> {
  return {
    // By default unknown fields would be dropped and "12" become 12.
    customOptions: { removeAdditional: false, coerceTypes: false, useDefaults: false, allErrors: false },
    plugins: [
      (ajv) => {
        // The decoder makes the bytes, and knows the limits.
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

/** Schemas say nothing of queries: unknown parameters are refused here. A POST without a body has an empty one. */
export function validateRequests(app: FastifyInstance): void {
  app.addHook('preValidation', (request, _reply, done) => {
    if (request.body === undefined && request.method === 'POST') request.body = {}
    done(unknownParameter(request.query as RawQuery, request.routeOptions.config.query ?? NO_PARAMETERS))
  })
}
