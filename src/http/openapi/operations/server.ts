import type { Operations } from '../operation.js'

export const server: Operations = {
  'GET /livez': {
    id: 'checkAlive',
    tag: 'Server',
    summary: 'Whether the process answers',
    description: 'Restart the process when it does not.',
  },
  'GET /readyz': {
    id: 'checkReady',
    tag: 'Server',
    summary: 'Whether the server can serve',
    description:
      '503 `storage_unavailable` on a full disk, where files are damaged, and until a restore is complete; of a shared table also when it is gone, and when no timestamps could be had for ten seconds. 503 `overloaded` while reads are turned away. A restart helps with none.',
    problems: ['overloaded'],
  },
  'GET /v1/status': {
    id: 'readStatus',
    tag: 'Server',
    summary: 'State of the server',
    description: 'Version, capabilities, queues, collection, feed and observers. Never turned away under load.',
  },
  'GET /metrics': {
    id: 'readMetrics',
    tag: 'Server',
    summary: 'Metrics',
    description:
      "What the server counts, in Prometheus' text format 0.0.4: requests, transactions, waits, the storage, feeds, observers, Node and the process. It needs a token that reads every key, and is never turned away under load.",
  },
  'GET /openapi.json': {
    id: 'readDescription',
    tag: 'Server',
    summary: 'This document',
    description: 'OpenAPI 3.1, made from the schemas that validate requests, with the limits of this server.',
    headers: ['If-None-Match'],
    answers: { 200: { headers: ['ETag'] }, 304: { description: 'It has not changed.', headers: ['ETag'] } },
  },
  'GET /docs': {
    id: 'readReference',
    tag: 'Server',
    summary: 'This document as a page',
    description:
      'For people, with search, and calls that can be sent. It loads nothing from elsewhere. 404 where the server runs from sources that were not built.',
    headers: ['If-None-Match'],
    problems: ['not_found'],
    answers: { 200: { headers: ['ETag'] }, 304: { description: 'It has not changed.', headers: ['ETag'] } },
  },
}
