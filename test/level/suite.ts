import { createRequire } from 'node:module'
import type { Db } from '../../src/client/index.js'
import { PerkvLevel, type PerkvLevelOptions } from '../../src/level/index.js'
import { type Tape, tape } from './tape.js'

type Factory = (options?: PerkvLevelOptions<unknown, unknown>) => PerkvLevel<unknown, unknown>

const suite: (options: { readonly test: Tape; readonly factory: Factory }) => void = createRequire(import.meta.url)(
  'abstract-level/test',
)

/** The suite that abstract-level publishes for databases like this one, on levels that share a `Db`. */
export function levelSuite(db: Db): void {
  let levels = 0
  suite({ test: tape, factory: (options) => new PerkvLevel(db, { ...options, prefix: `${levels++}/` }) })
}
