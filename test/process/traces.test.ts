import { join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { Collector } from '../server/collector.js'
import { killAll, startProcess, withTempDir } from './server-process.js'

afterAll(killAll)

test.each([
  ['that answers', new Collector()],
  ['that hangs', new Collector(() => {})],
])('the built server gives its last spans to a collector %s, and stops', (_, collector) =>
  withTempDir(async (directory) => {
    const endpoint = await collector.listen()
    try {
      const server = await startProcess(join(directory, 'data'), ['--otlp-endpoint', endpoint])
      expect((await fetch(`${server.url}/v1/kv/key`, { method: 'PUT', body: 'value' })).status).toBe(200)
      expect((await fetch(`${server.url}/v1/kv/key`)).status).toBe(200)
      expect(await server.stop('SIGTERM')).toEqual({ code: 0, signal: null })
      const names = collector.spans.filter(({ kind }) => kind === 2).map(({ name }) => name)
      expect(names).toEqual(['PUT /v1/kv/:key', 'GET /v1/kv/:key'])
      expect(collector.resource).toMatchObject({ 'service.name': 'perkv', 'telemetry.sdk.name': 'opentelemetry' })
    } finally {
      collector.close()
    }
  }),
)
