import type { Server } from 'node:http'
import type { Socket } from 'node:net'
import { createSecureContext, type TLSSocket, type Server as TlsServer } from 'node:tls'
import type { FastifyInstance } from 'fastify'

export interface TlsFiles {
  readonly cert: Buffer
  readonly key: Buffer
}

const MIN_VERSION = 'TLSv1.2'
const ALPNProtocols = ['h2', 'http/1.1']

/** Options for HTTPS with a certificate, otherwise for HTTP. fastify's types do not allow for a server that may be either. */
export function withTls<O extends { readonly http: object }>(options: O, tls: TlsFiles | undefined): O {
  if (tls === undefined) return options
  const { http, ...rest } = options
  return { ...rest, https: { ...http, ...tls, minVersion: MIN_VERSION, ALPNProtocols } } as unknown as O
}

export function requireUsable(tls: TlsFiles): TlsFiles {
  createSecureContext(tls)
  return tls
}

/** Applies to new connections only. */
export function changeTls(app: FastifyInstance, tls: TlsFiles): void {
  const server = app.server as unknown as TlsServer
  server.setSecureContext({ ...tls, minVersion: MIN_VERSION })
}

export function listenerOfNode(server: Server, isTls: boolean) {
  const event = isTls ? 'secureConnection' : 'connection'
  const [serve] = server.listeners(event) as ((socket: Socket) => void)[]
  if (serve === undefined) throw new Error('node:http does not listen for connections')
  return { event, listener: serve, serve: (socket: Socket): void => serve.call(server, socket) } as const
}

export function isWithin(
  secure: TLSSocket,
  raw: { remoteAddress?: string | undefined; remotePort?: number | undefined },
) {
  return secure.remotePort === raw.remotePort && secure.remoteAddress === raw.remoteAddress
}
