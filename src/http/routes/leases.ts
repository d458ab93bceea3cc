import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import type { PageRequest } from '../../bytes/sorted-map.js'
import { invalid } from '../../errors/kv-error.js'
import type { LeaseRequest, LeaseState } from '../../leases/rules/leases-api.js'
import { LIST_LIMIT_MAX } from '../../limits.js'
import type { Watch } from '../admission/open-watches.js'
import { answer } from '../wire/answer.js'
import { decoderOf } from '../wire/decode.js'
import { LEASE_ROUTE, leaseNameOf } from '../wire/key-url.js'
import { answerPage, LISTING } from '../wire/list-page.js'
import { queryInteger, queryText, type RawQuery } from '../wire/query.js'
import * as schemas from '../wire/schemas/leases.js'
import { shownLease } from '../wire/shown-lease.js'
import type { AppContext } from './context.js'

/** Tokens cover names of leases as they cover keys. The fast lane serves PUTs that do not wait. */
export function leaseRoutes(app: FastifyInstance, { database, limits, traffic }: AppContext): void {
  const { leases } = database

  const leaseName = ({ raw, grant }: FastifyRequest): string => leaseNameOf(raw.keyInUrl ?? '', grant)

  /** A request that waits counts as a watch from then on. */
  async function put(
    request: FastifyRequest,
    reply: FastifyReply,
    name: string,
    asked: Omit<LeaseRequest, 'signal'>,
  ): Promise<LeaseState> {
    const key = Buffer.from(name)
    const caller = request.grant.identity
    let watch: Watch | undefined
    const signal = (): AbortSignal => {
      watch ??= traffic.openWatch(request, reply, {
        requires: (grant) => {
          grant.requireWrite()
          grant.requireKey(key, 'name')
        },
        endedWaitMs: 0,
      })
      return watch.signal
    }
    try {
      return await leases.put(name, { ...asked, signal }, caller)
    } catch (error) {
      if (!watch?.hasClientEnded) throw error
      return await leases.put(name, { ...asked, waitMs: 0 }, caller) // The refusal names the holder.
    } finally {
      watch?.end()
    }
  }

  const decodePut = decoderOf(schemas.put.body, limits)
  const putting = { schema: schemas.put, config: { access: 'write', work: 'ending' } } as const
  app.put(LEASE_ROUTE, putting, async (request, reply) => {
    const name = leaseName(request)
    const asked = await decodePut(request)
    const state = await put(request, reply, name, asked)
    return answer(request, reply, shownLease(state))
  })

  const listing = { schema: schemas.list, config: { access: 'read', work: 'reading', query: LISTING } } as const
  app.get('/v1/leases', listing, (request, reply) => {
    const { grant } = request
    const mayAccess = grant.isScoped ? (name: string) => grant.mayAccess(Buffer.from(name)) : undefined
    const read = (page: PageRequest) => leases.page(page, mayAccess)
    return answerPage(request, reply, 'leases', database.store.cursorSecret, read, shownLease)
  })

  const reading = { schema: schemas.get, config: { access: 'read', work: 'reading', query: ['keys'] } } as const
  app.get(LEASE_ROUTE, reading, async (request, reply) => {
    const name = leaseName(request)
    const limit = queryInteger(request.query as RawQuery, 'keys', 0, LIST_LIMIT_MAX)
    const lease = await leases.get(name)
    if (limit === undefined) return answer(request, reply, shownLease(lease))
    const { grant } = request
    const mayAccess = grant.isScoped ? (key: Uint8Array) => grant.mayAccess(key) : undefined
    const { keys, isCut } = await database.attachedKeys.list(lease.fence, limit, mayAccess)
    return answer(request, reply, { ...shownLease(lease), keys, moreKeys: isCut })
  })

  const config = { access: 'write', bodyMayBeEmpty: true, work: 'ending', query: ['holder', 'fence'] } as const
  app.delete(LEASE_ROUTE, { schema: schemas.remove, config }, async (request, reply) => {
    const name = leaseName(request)
    const query = request.query as RawQuery
    const holder = queryText(query, 'holder')
    if (holder === undefined) throw invalid('holder', 'holder is missing')
    const fence = queryInteger(query, 'fence', 1, Number.MAX_SAFE_INTEGER)
    const { deleting } = await leases.remove(name, holder, fence)
    return answer(request, reply, deleting ? { deleting } : {})
  })
}
