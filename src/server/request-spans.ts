import type { Attributes } from '@opentelemetry/api'
import type { Stage } from '../event-loop/stages.js'
import type { TracedRequest } from '../http/connections/traced-requests.js'

/** A part of a request. Times are milliseconds by `performance.now()`. */
export interface Part {
  readonly name: string
  readonly beganMs: number
  readonly endedMs: number
}

/** A body that came in one piece with its head has no span. */
const RECEIVE_MS_MIN = 1

const STAGE_NAMES: Readonly<Record<Stage, string>> = {
  latchMs: 'latch wait',
  lockMs: 'lock wait',
  readMs: 'read',
  writeMs: 'write',
}

/** Methods of RFC 9110 and RFC 5789. Other names are not shown, because they could be anything. */
const METHODS: ReadonlySet<string> = new Set('CONNECT DELETE GET HEAD OPTIONS PATCH POST PUT TRACE'.split(' '))

export function spanName({ method, route }: TracedRequest): string {
  const known = METHODS.has(method) ? method : 'HTTP'
  return route === undefined ? known : `${known} ${route}`
}

/**
 * Attributes by OpenTelemetry's conventions for HTTP servers. They contain no data of clients, so `url.path` is set only where
 * it is the route: elsewhere it would hold keys or ids of transactions. Attributes without a value are left out of the span.
 * @see https://opentelemetry.io/docs/specs/semconv/http/http-spans/
 */
export function attributesOf(
  { method, route, status, errorCode, stages }: TracedRequest,
  scheme: 'http' | 'https',
): Attributes {
  const { txn, intervalsOmitted = 0 } = stages ?? {}
  return {
    'http.request.method': METHODS.has(method) ? method : '_OTHER',
    'url.scheme': scheme,
    'url.path': route === undefined || /[:*]/.test(route) ? undefined : route,
    'http.route': route,
    'http.response.status_code': status,
    'error.type': errorCode,
    'perkv.start_ts': txn?.startTs,
    'perkv.commit_ts': txn?.commitTs,
    'perkv.commit_kind': txn?.kind,
    'perkv.spans_omitted': intervalsOmitted || undefined,
  }
}

/** The intervals in which a request has waited or worked. Concurrent intervals overlap. */
export function partsOf({ arrivedMs, startedMs, receivedMs, stages }: TracedRequest): Part[] {
  const parts: Part[] = []
  if (startedMs > arrivedMs) parts.push({ name: 'queue', beganMs: arrivedMs, endedMs: startedMs })
  if (receivedMs >= RECEIVE_MS_MIN)
    parts.push({ name: 'receive body', beganMs: startedMs, endedMs: startedMs + receivedMs })
  for (const { stage, ...times } of stages?.intervals ?? []) parts.push({ name: STAGE_NAMES[stage], ...times })
  return parts
}
