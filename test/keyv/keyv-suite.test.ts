import keyvTestSuite, { keyvIteratorTests } from '@keyv/test-suite'
import { Keyv } from 'keyv'
import * as vitest from 'vitest'
import type { Db } from '../../src/client/index.js'
import { KeyvPerkv } from '../../src/keyv/index.js'
import { BACKENDS } from '../client/backends.js'

/** The tests that keyv has for its own adapters. They stop the clock of their process. */
vitest.describe.each(BACKENDS.slice(0, 2))('$backend', ({ openDb }) => {
  let opened: Awaited<ReturnType<typeof openDb>>
  vitest.beforeAll(async () => {
    opened = await openDb({})
  })
  vitest.afterAll(() => opened.end())

  const store = (): KeyvPerkv => new KeyvPerkv(opened.db satisfies Db)
  keyvTestSuite(vitest, Keyv, store)
  keyvIteratorTests(vitest, Keyv, store)
})
