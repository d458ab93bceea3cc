import { createSecureContext, type TLSSocket, type Server as TlsServer } from 'node:tls'
import type { FastifyInstance } from 'fastify'

/** PEM, as the files hold it. */
export interface TlsFiles {
  readonly cert: Buffer
  readonly key: Buffer
}

const MIN_VERSION = 'TLSv1.2'

/** How fastify listens. Its types know an HTTP server or an HTTPS server, not one that may be either. */
export function withTls<O extends { readonly http: object }>(options: O, tls: TlsFiles | undefined): O {
  if (tls === undefined) return options
  const { http, ...rest } = options
  return { ...rest, https: { ...http, ...tls, minVersion: MIN_VERSION } } as unknown as O
}

/** @throws what OpenSSL finds wrong with them, such as a key of another certificate. */
export function requireUsable(tls: TlsFiles): TlsFiles {
  createSecureContext(tls)
  return tls
}

/** For connections from now on. */
export function changeTls(app: FastifyInstance, tls: TlsFiles): void {
  const server = app.server as unknown as TlsServer
  server.setSecureContext({ ...tls, minVersion: MIN_VERSION })
}

/** Two ends of one connection: what came by TCP, and what is spoken within. */
export function isWithin(
  secure: TLSSocket,
  raw: { remoteAddress?: string | undefined; remotePort?: number | undefined },
) {
  return secure.remotePort === raw.remotePort && secure.remoteAddress === raw.remoteAddress
}
