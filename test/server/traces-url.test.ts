import { expect, test } from 'vitest'
import { readConfig } from '../../src/server/config.js'
import { UsageError } from '../../src/server/flags.js'

const OWN = 'OTEL_EXPORTER_OTLP_TRACES_ENDPOINT'
const ALL = 'OTEL_EXPORTER_OTLP_ENDPOINT'

test.each([
  [[], {}, undefined],
  [[], { OTEL_SERVICE_NAME: 'kv', OTEL_TRACES_SAMPLER: 'always_on' }, undefined],
  [['--otlp-endpoint', 'http://c:4318'], {}, 'http://c:4318/v1/traces'],
  [['--otlp-endpoint', 'https://c/base/'], {}, 'https://c/base/v1/traces'],
  [[], { PERKV_OTLP_ENDPOINT: 'http://c:4318' }, 'http://c:4318/v1/traces'],
  [[], { [ALL]: 'http://c:4318/' }, 'http://c:4318/v1/traces'],
  [[], { [ALL]: 'http://c:4318', [OWN]: 'http://d/all?x=1' }, 'http://d/all?x=1'],
  [['--otlp-endpoint', 'http://c'], { [OWN]: 'http://d', OTEL_SDK_DISABLED: 'true' }, 'http://c/v1/traces'],
  [[], { [ALL]: 'http://c', OTEL_SDK_DISABLED: 'TRUE' }, undefined],
  [[], { [ALL]: 'http://c', OTEL_SDK_DISABLED: 'false' }, 'http://c/v1/traces'],
  [[], { [ALL]: '' }, undefined],
  [[], { [ALL]: 'http://c', OTEL_TRACES_EXPORTER: 'none' }, undefined],
  [[], { OTEL_TRACES_EXPORTER: 'console, otlp' }, 'http://localhost:4318/v1/traces'],
])('%j with %j', (flags, env, url) => {
  expect(readConfig(flags, env as NodeJS.ProcessEnv).tracesUrl).toBe(url)
})

test.each([
  [['--otlp-endpoint', 'collector:4318'], {}],
  [['--otlp-endpoint', ''], {}],
  [[], { [OWN]: 'grpc://collector' }],
])('%j with %j is refused', (flags, env) => {
  expect(() => readConfig(flags, env as NodeJS.ProcessEnv)).toThrow(UsageError)
})
