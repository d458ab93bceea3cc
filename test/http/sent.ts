import type { LightMyRequestResponse } from 'fastify'

export type Headers = Record<string, string>
export type Method = 'GET' | 'HEAD' | 'PUT' | 'POST' | 'DELETE' | 'PATCH' | 'OPTIONS'

/** An answer, however its request was sent. */
export type Sent = Pick<LightMyRequestResponse, 'statusCode' | 'headers' | 'body' | 'rawPayload' | 'json'>
