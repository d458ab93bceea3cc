import { expect, test } from 'vitest'
import { fingerprinted } from '../../../src/http/wire/one-shot.js'

test('stored fingerprints of one-shots are made of these names, in this order', () => {
  const asked = { checks: [], ops: [], isolation: undefined, commitEffects: { acks: [] }, maxRetries: 1, lockWaitMs: 2 }
  const names = ['checks', 'ops', 'isolation', 'riders', 'maxRetries', 'lockWaitMs']
  expect(Object.keys(fingerprinted(asked))).toEqual(names)
})
