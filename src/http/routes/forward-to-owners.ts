import type { IncomingMessage } from 'node:http'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import type { Registry } from '../../cluster/registry.js'
import { isKvError, KvError } from '../../errors/kv-error.js'
import { serverOfTxn } from '../../txn/txn-id.js'
import { abortOnHangUp, whenOver } from '../connections/answer-end.js'
import { answerHeaders, FORWARDED, type Forwarding, openForwarding } from '../connections/forwarding.js'
import { originForm } from '../wire/key-url.js'
import { type RawQuery, timeoutMs } from '../wire/query.js'

declare module 'fastify' {
  interface FastifyRequest {
    /** False once the owner of the transaction was looked up. */
    isForwardable: boolean
  }
}

const TXN_ROUTE = '/v1/txn/:txn'
const COMMIT_ROUTE = '/v1/txn/:txn/commit'
/** How much later than `timeout_ms` the other server may answer that it has passed. */
const GRACE_MS = 250
/** How much longer a commit that has begun is waited for. */
const COMMIT_GRACE_MS = 10_000

/**
 * Forwards requests for transactions of other servers to them, before their bodies are read, and at most once. Without a
 * connection the request is answered here: the transaction is not found, or its commit has left an outcome under its
 * Idempotency-Key. Must be called before the routes are registered.
 */
export function forwardToOwners(app: FastifyInstance, registry: Registry): void {
  const forwarding = openForwarding()
  app.decorateRequest('isForwardable', true)
  app.addHook('onClose', async () => forwarding.close())
  const hook = (request: FastifyRequest, reply: FastifyReply, done: (error?: Error) => void): void => {
    const server = request.isForwardable ? ownerElsewhere(request, registry) : undefined
    request.isForwardable = false // The hook runs twice for HEAD.
    if (server === undefined) done()
    else
      forward(request, reply, { forwarding, registry, server }).then((isAnswered) => {
        if (!isAnswered) done()
      }, done)
  }
  app.addHook('onRoute', (route) => {
    if (route.url === TXN_ROUTE || route.url.startsWith(`${TXN_ROUTE}/`))
      route.onRequest = [...[route.onRequest ?? []].flat(), hook] // Runs after admission.
  })
}

function ownerElsewhere(request: FastifyRequest, registry: Registry): string | undefined {
  const server = serverOfTxn((request.params as { readonly txn: string }).txn)
  return server === registry.id || request.headers[FORWARDED] !== undefined ? undefined : server
}

interface Owner {
  readonly forwarding: Forwarding
  readonly registry: Registry
  readonly server: string
}

/** @returns false when the request must be answered here. @throws KvError */
async function forward(request: FastifyRequest, reply: FastifyReply, owner: Owner): Promise<boolean> {
  const found = await owner.registry.find(owner.server)
  if (found === undefined) return false
  const end = new AbortController()
  const { signal } = end
  const endWith = (reason: Error): void => end.abort(reason)
  const onGone = (): void => endWith(found.gone.reason)
  found.gone.addEventListener('abort', onGone)
  whenOver(reply.raw, () => found.gone.removeEventListener('abort', onGone))
  abortOnHangUp(end, reply.raw)
  const answered = endWhenLate(request, endWith)
  request.raw.once('end', () => request.flight?.received())
  let response: IncomingMessage | undefined
  try {
    response = await owner.forwarding.send(found.url, originForm(request.originalUrl), request.raw, signal)
  } catch (error) {
    throw unanswered(request, owner.server, signal.aborted ? signal.reason : error)
  } finally {
    answered()
  }
  if (response === undefined) return false
  reply.status(response.statusCode ?? 502).headers(answerHeaders(response))
  reply.send(response)
  return true
}

/**
 * Ends the request a little after `timeout_ms`, because the other server should have answered by itself. @returns a function
 * that stops the clock.
 */
function endWhenLate(request: FastifyRequest, endWith: (reason: Error) => void): () => void {
  const afterMs = askedTimeoutMs(request)
  if (afterMs === undefined) return () => {}
  const late = new KvError('deadline_exceeded', `no answer within ${afterMs} ms`, {})
  const timer = setTimeout(() => endWith(late), afterMs + (isCommit(request) ? COMMIT_GRACE_MS : GRACE_MS))
  timer.unref()
  return () => clearTimeout(timer)
}

/** An invalid value is left to the other server, which refuses it. */
function askedTimeoutMs(request: FastifyRequest): number | undefined {
  try {
    return timeoutMs(request.query as RawQuery)
  } catch {
    return undefined
  }
}

function isCommit(request: FastifyRequest): boolean {
  return request.routeOptions.url === COMMIT_ROUTE
}

/**
 * The error of a request that was sent and not answered. The outcome of a commit is unknown then; other effects end with the
 * transaction at the latest.
 */
function unanswered(request: FastifyRequest, server: string, cause: unknown): KvError {
  if (isCommit(request)) {
    const detail = `the server ${server}, in which the transaction lives, has not answered: repeat the commit`
    return new KvError('storage_unavailable', detail, {}, { cause })
  }
  if (isKvError(cause, 'deadline_exceeded') || isKvError(cause, 'forbidden') || isKvError(cause, 'unauthorized'))
    return cause
  const detail = `the transaction lived in the server ${server}, which has not answered`
  return new KvError('txn_not_found', detail, { server }, { cause })
}
