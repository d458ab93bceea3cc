import { TestRunner } from 'vitest'
import { type LevelDbStoreOptions, openLevelDbStore, openMemoryStore } from '../../src/store/leveldb/leveldb-store.js'
import type { CompleteStore, Store } from '../../src/store/store.js'
import type { Table } from '../../src/store/table/layout/table.js'
import type { StoreOptions } from './suite/contract.js'
import { MemoryTable } from './table/memory-table.js'
import { openTableStore } from './table/open-table-store.js'

const STORES = ['leveldb', 'memory', 'bigtable'] as const

/** What the tests above the stores run on: `PERKV_TEST_STORE=memory npx vitest run test/http`. */
export const TEST_STORE = chosen(process.env['PERKV_TEST_STORE'] ?? 'leveldb')

function chosen(name: string): (typeof STORES)[number] {
  const found = STORES.find((each) => each === name)
  if (found === undefined) throw new Error(`PERKV_TEST_STORE is ${name}, and none of ${STORES.join(', ')}`)
  return found
}

export type TestStoreOptions = Omit<Partial<LevelDbStoreOptions>, 'directory'>

/**
 * A new store, of the kind that the environment says. A test that asks for LevelDB's engine is skipped where another kind
 * was chosen.
 * @param directory for a store that needs one.
 */
export async function openTestStore(directory: string, options: TestStoreOptions = {}): Promise<CompleteStore> {
  if (TEST_STORE === 'leveldb') return openLevelDbStore({ durability: 'async', ...options, directory })
  if (options.openEngine !== undefined) skipOthers('holds, fails or counts calls of the engine')
  const { now, monotonicNow, onClockStep, answers, locksMax } = options
  if (TEST_STORE === 'bigtable') return onTable({ now, monotonicNow, ...(answers && { answers }) })
  return openMemoryStore({ now, monotonicNow, onClockStep, answers, locksMax })
}

/**
 * A table in memory, or of the emulator or the PostgreSQL that the environment names. Cases that need what this store lacks are
 * skipped: see test/bigtable/README.md.
 */
async function onTable(options: StoreOptions): Promise<CompleteStore> {
  const store: Store = await openTableStore(await ownTable(), options)
  return store as CompleteStore
}

async function ownTable(): Promise<Table> {
  if (process.env['BIGTABLE_EMULATOR_HOST'] !== undefined)
    return (await import('../bigtable/own-table.js')).openOwnTable()
  if (process.env['PERKV_TEST_POSTGRES'] !== undefined) return (await import('../postgres/own-table.js')).openOwnTable()
  return new MemoryTable()
}

/** What a store has left in its directory; the test is skipped where the store leaves nothing. */
export async function reopenTestStore(directory: string, options: TestStoreOptions = {}): Promise<CompleteStore> {
  skipOthers('opens what another run has left')
  return openTestStore(directory, options)
}

/** Skips the running test where another store than LevelDB was chosen. @param reason what the test needs of LevelDB. */
export function skipOthers(reason: string): void {
  if (TEST_STORE !== 'leveldb') TestRunner.getCurrentTest()?.context.skip(`only on LevelDB: ${reason}`)
}
