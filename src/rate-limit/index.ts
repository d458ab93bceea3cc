/** `perkv/rate-limit`: docs/rate-limits.md. */

export {
  type FastifyRateLimitStore,
  type FastifyRateLimitStoreOptions,
  fastifyRateLimitStore,
} from './fastify-rate-limit-store.js'
export { type FlexiblePackage, flexibleRateLimiter } from './flexible-rate-limiter.js'
