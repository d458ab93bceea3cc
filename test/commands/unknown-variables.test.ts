import { expect, test } from 'vitest'
import { unknownVariables } from '../../src/commands/unknown-variables.js'
import { SERVE_FLAGS } from '../../src/server/config.js'

test.each([
  ['a misspelt one', { PERKV_KEY_BYTE_MAX: '1' }, 'PERKV_KEY_BYTE_MAX (did you mean PERKV_KEY_BYTES_MAX?)'],
  ['another case', { PERKV_Port: '1' }, 'PERKV_Port (did you mean PERKV_PORT?)'],
  ['one of a command', { PERKV_SERVR: 'x' }, 'PERKV_SERVR (did you mean PERKV_SERVER?)'],
  [
    'a flag that has none',
    { PERKV_OUTPUT_FORMAT_OF_ALL: 'x', PERKV_DATAA: 'x' },
    /^PERKV_OUTPUT_FORMAT_OF_ALL, PERKV_DATAA \(/,
  ],
  ['a long one', { [`PERKV_${'X'.repeat(5000)}`]: 'x' }, /^PERKV_X{94}…$/],
] as const)('%s is named, with the nearest one', async (_, env, names) => {
  const said = await unknownVariables(SERVE_FLAGS, env)
  const prefix = 'PerKV knows no variable '
  expect(said?.slice(0, prefix.length)).toBe(prefix)
  if (typeof names === 'string') expect(said?.slice(prefix.length)).toBe(names)
  else expect(said?.slice(prefix.length)).toMatch(names)
})

test('those of all commands, of tests, of Kubernetes and of other programs are no matter', async () => {
  const env = {
    ...{ PERKV_PORT: '1', PERKV_SERVER: 'x', PERKV_TOKEN: 'x', PERKV_CLIENT_TOKEN_FILE: 'x', PERKV_LEASES_MAX: '1' },
    ...{ PERKV_TEST_RUNS: '1', PERKV_SERVICE_HOST: 'x', PERKV_SERVICE_PORT_HTTP: 'x', PERKV_PORT_7400_TCP_ADDR: 'x' },
    ...{ PERKVX: 'x', MY_PERKV_PORT: '1', OTEL_SERVICE_NAME: 'x' },
  }
  expect(await unknownVariables(SERVE_FLAGS, env)).toBeUndefined()
  expect(await unknownVariables({}, env)).toBeUndefined()
})
