import type { FastifyRequest } from 'fastify'
import { requireName } from '../../percolator/name.js'

export function nameInPath(request: FastifyRequest, of: 'observer' | 'consumer' | 'webhook'): string {
  const { name } = request.params as { readonly name: string }
  requireName(of, name)
  return name
}
