import type { Schema } from './schema.js'

/** The OpenAPI Initiative specifies its schema. */
const Document: Schema = { type: 'object' }

export const description = { answers: { 200: { json: Document }, 304: {} } } as const

export const reference = { answers: { 200: { text: 'text/html' }, 304: {} } } as const
