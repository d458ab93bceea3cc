import { expect, test } from 'vitest'
import { CLIENT_SAMPLES } from '../../../src/http/openapi/client-samples.js'
import { OPERATIONS } from '../../../src/http/openapi/operations/all.js'

/** test/process/types.test.ts compiles them. */
test('each sample of the client is for a call that there is', () => {
  const ids = Object.values(OPERATIONS).flatMap(({ id, head }) => [id, head?.id])
  expect(Object.keys(CLIENT_SAMPLES).filter((id) => !ids.includes(id))).toEqual([])
})
