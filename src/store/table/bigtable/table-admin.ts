import { rowKeyOfSystem } from '../layout/row-keys.js'
import type { Family } from '../layout/table.js'
import { BigtableSetupError } from './bigtable-setup-error.js'
import {
  callOptions,
  type GcRule,
  openDataClient,
  openTableAdminClient,
  type TableAdminClient,
  type TableMessage,
} from './google-package.js'
import { ALREADY_EXISTS, grpcCode, isCertain, NOT_FOUND, printFailure } from './grpc-failures.js'
import { Patience } from './patience.js'
import { mutationOf, predicateOf } from './row-filters.js'
import { instanceName, printTableAddress, type TableAddress, tableName } from './table-address.js'

/** @internal */
export const FAMILIES: readonly Family[] = ['l', 'w', 'r', 'd', 'v', 'o']
/** Cells are overwritten, so a second version exists only for a moment. */
const ONE_VERSION: GcRule = { maxNumVersions: 1 }

export interface Made {
  readonly table: boolean
  /** Also families added to an existing table. */
  readonly families: readonly Family[]
}

/**
 * Makes the table and its families, if they are missing. Changes nothing that exists.
 * @throws BigtableSetupError also for existing families that would lose data.
 */
export async function makeTable(address: TableAddress): Promise<Made> {
  const admin = await openTableAdminClient()
  try {
    const found = await tableOf(admin, address)
    if (found === undefined) {
      if (await isCreated(admin, address)) return { table: true, families: FAMILIES }
      return { table: false, families: await addFamilies(admin, address, await requireTable(admin, address)) }
    }
    return { table: false, families: await addFamilies(admin, address, found) }
  } finally {
    await admin.close()
  }
}

/**
 * Checks that the table and its families exist, that no garbage collection rule removes data, and that the app profile allows
 * conditional changes, which it tries on a row of the server's own.
 * @throws BigtableSetupError
 */
export async function requireSoundTable(address: TableAddress): Promise<void> {
  const admin = await openTableAdminClient()
  try {
    const found = await requireTable(admin, address)
    const missing = missingFamilies(found)
    if (missing.length > 0) throw setupError(address, `it has no column family ${missing.join(', ')}`)
    requireKeeping(address, found)
  } finally {
    await admin.close()
  }
  await requireChanges(address)
}

/**
 * The faults in the settings of an existing table, one sentence each. Changes nothing.
 * @throws BigtableSetupError when there is no such table.
 */
export async function faultsOf(address: TableAddress): Promise<readonly string[]> {
  const admin = await openTableAdminClient()
  try {
    const found = await requireTable(admin, address)
    const missing = missingFamilies(found).map((family) => `the table has no column family ${family}`)
    const eating = eatingFamilies(found)
    return eating.length === 0 ? missing : [...missing, eatingDetail(eating)]
  } finally {
    await admin.close()
  }
}

/** @returns false when it existed already. */
async function isCreated(admin: TableAdminClient, address: TableAddress): Promise<boolean> {
  const columnFamilies = Object.fromEntries(FAMILIES.map((family) => [family, { gcRule: ONE_VERSION }]))
  const request = { parent: instanceName(address), tableId: address.table, table: { columnFamilies } }
  try {
    await repeated(address, (ms) => admin.createTable(request, callOptions(ms)))
    return true
  } catch (error) {
    // Another server was faster, or an earlier try succeeded.
    if (causeCode(error) === ALREADY_EXISTS) return false
    throw error
  }
}

async function addFamilies(
  admin: TableAdminClient,
  address: TableAddress,
  found: TableMessage,
): Promise<readonly Family[]> {
  requireKeeping(address, found)
  const missing = missingFamilies(found)
  const made: Family[] = []
  // One by one, because a family that somebody else has just made would refuse the others.
  for (const id of missing) {
    const request = { name: tableName(address), modifications: [{ id, create: { gcRule: ONE_VERSION } }] }
    try {
      await repeated(address, (ms) => admin.modifyColumnFamilies(request, callOptions(ms)))
      made.push(id)
    } catch (error) {
      if (causeCode(error) !== ALREADY_EXISTS) throw error
    }
  }
  return made
}

function missingFamilies({ columnFamilies }: TableMessage): readonly Family[] {
  return FAMILIES.filter((family) => !Object.hasOwn(columnFamilies, family))
}

function requireKeeping(address: TableAddress, found: TableMessage): void {
  const eating = eatingFamilies(found)
  if (eating.length > 0) throw setupError(address, eatingDetail(eating))
}

/** All cells have timestamp 0, so any rule about age would remove them all. */
function eatingFamilies({ columnFamilies }: TableMessage): readonly Family[] {
  return FAMILIES.filter((family) => hasAge(columnFamilies[family]?.gcRule))
}

function eatingDetail(eating: readonly Family[]): string {
  const detail = `the garbage collection of column family ${eating.join(', ')} has a maximum age, which would remove data`
  return `${detail}: set it to one version`
}

function hasAge(rule: GcRule | null | undefined): boolean {
  if (!rule) return false
  if (rule.maxAge) return true
  return [...(rule.intersection?.rules ?? []), ...(rule.union?.rules ?? [])].some(hasAge)
}

async function requireTable(admin: TableAdminClient, address: TableAddress): Promise<TableMessage> {
  const found = await tableOf(admin, address)
  if (found === undefined) throw setupError(address, 'there is no such table')
  return found
}

async function tableOf(admin: TableAdminClient, address: TableAddress): Promise<TableMessage | undefined> {
  try {
    const [table] = await repeated(address, (ms) => admin.getTable({ name: tableName(address) }, callOptions(ms)))
    return table
  } catch (error) {
    if (causeCode(error) === NOT_FOUND) return undefined
    throw error
  }
}

/** Deletes a column that never exists, so the table is unchanged. */
async function requireChanges(address: TableAddress): Promise<void> {
  const column = { family: 'o', qualifier: Buffer.from('probe'), value: undefined } as const
  const mutations = [mutationOf(column)]
  const request = {
    tableName: tableName(address),
    appProfileId: address.appProfile ?? '',
    rowKey: rowKeyOfSystem('probe'),
    predicateFilter: predicateOf(column),
    trueMutations: mutations,
    falseMutations: mutations,
  }
  const client = await openDataClient()
  const patience = new Patience()
  try {
    for (;;)
      try {
        await client.checkAndMutateRow(request, callOptions(patience.callMs))
        return
      } catch (error) {
        if (isCertain(error)) throw changesRefused(address, error)
        await patience.after(error)
      }
  } catch (error) {
    throw asSetupError(address, error)
  } finally {
    await client.close()
  }
}

function changesRefused(address: TableAddress, error: unknown): BigtableSetupError {
  const detail = `a conditional change was refused (${printFailure(error)})`
  const hint = 'the app profile must use single-cluster routing and allow single-row transactions'
  return setupError(address, `${detail}: ${hint}`, error)
}

/** @throws BigtableSetupError with the failure as its cause. */
export async function repeated<T>(address: TableAddress, call: (ms: number) => Promise<T>): Promise<T> {
  const patience = new Patience()
  for (;;)
    try {
      return await call(patience.callMs)
    } catch (error) {
      if (isCertain(error)) throw setupError(address, printFailure(error), error)
      await patience.after(error).catch((last: unknown) => {
        throw asSetupError(address, last)
      })
    }
}

/** @param error of `repeated`. */
export function causeCode(error: unknown): number | undefined {
  return grpcCode((error as Error).cause)
}

function asSetupError(address: TableAddress, error: unknown): BigtableSetupError {
  return error instanceof BigtableSetupError ? error : setupError(address, printFailure(error), error)
}

function setupError(address: TableAddress, detail: string, cause?: unknown): BigtableSetupError {
  return new BigtableSetupError(`${printTableAddress(address)}: ${detail}`, { cause })
}
