/** `perkv/level`: docs/level.md. */

export type { LevelTxn, LevelTxnGetOptions } from './level-txn.js'
export { PerkvLevel, type PerkvLevelOptions } from './perkv-level.js'
